#include "cuda/threads.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <csignal>
#include <string>

namespace pyxfer::tests {
namespace {

sigset_t signal_mask() {
  sigset_t found{};
  pthread_sigmask(SIG_SETMASK, nullptr, &found);
  return found;
}

std::string name_of_this_thread() {
  std::array<char, 16> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  return name.data();
}

TEST(cuda_threads, run_with_the_signals_of_other_processes_blocked) {
  sigset_t found{};
  start_thread("pyxfer-test", [&] { found = signal_mask(); }).join();
  for (auto const signal : {SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGCHLD, SIGUSR1, SIGUSR2, SIGPIPE}) {
    EXPECT_EQ(sigismember(&found, signal), 1) << signal;
  }
}

TEST(cuda_threads, report_their_own_faults) {
  sigset_t found{};
  start_thread("pyxfer-test", [&] { found = signal_mask(); }).join();
  for (auto const signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    EXPECT_EQ(sigismember(&found, signal), 0) << signal;
  }
}

TEST(cuda_threads, leave_the_signal_mask_of_their_creator_as_it_was) {
  sigset_t one{};
  sigemptyset(&one);
  sigaddset(&one, SIGUSR2);
  sigset_t before{};
  pthread_sigmask(SIG_SETMASK, &one, &before);
  start_thread("pyxfer-test", [] {}).join();
  auto const found = signal_mask();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(sigismember(&found, SIGUSR2), 1);
  EXPECT_EQ(sigismember(&found, SIGUSR1), 0);
}

TEST(cuda_threads, have_the_given_name) {
  std::string found;
  start_thread("pyxfer-test", [&] { found = name_of_this_thread(); }).join();
  EXPECT_EQ(found, "pyxfer-test");
}

TEST(cuda_threads, have_the_first_15_characters_of_a_longer_name) {
  std::string found;
  start_thread("pyxfer-0123456789", [&] { found = name_of_this_thread(); }).join();
  EXPECT_EQ(found, "pyxfer-01234567");
}

}  // namespace
}  // namespace pyxfer::tests
