#include "cuda/process.hpp"

#include "cuda/device.hpp"
#include "cuda/memory.hpp"
#include "engine_support.hpp"
#include "fork_support.hpp"

#include <pthread.h>

#include <csignal>
#include <iostream>

namespace pyxfer::tests {
namespace {

using cuda_process = engine_test;

TEST_F(cuda_process, can_continue_to_use_cuda) {
  note_process();
  EXPECT_NO_THROW(note_process());
  EXPECT_TRUE(same_process());
}

TEST_F(cuda_process, is_another_one_after_a_fork) {
  note_process();
  EXPECT_EQ(in_forked_child([] { return std::string{same_process() ? "same" : "another"}; }),
            "another");
}

TEST_F(cuda_process, that_was_forked_gets_an_error_with_advice) {
  note_process();
  EXPECT_EQ(in_forked_child([] { return text_of<forked_error>(note_process); }),
            "This process was forked after its parent had used CUDA, and CUDA does not survive a "
            "fork. Start workers with multiprocessing.get_context(\"spawn\"), or use pyxfer only "
            "after the fork.");
}

TEST_F(cuda_process, that_was_forked_cannot_ask_for_anything) {
  note_process();
  auto const uses = {
      std::function<void()>{[] { static_cast<void>(device_count()); }},
      std::function<void()>{[] { static_cast<void>(properties_of(0)); }},
      std::function<void()>{[] { static_cast<void>(memory_info(0)); }},
      std::function<void()>{[] { synchronize_device(0); }},
      std::function<void()>{[] { device_guard const guard{0}; }},
  };
  for (auto const& use : uses) {
    auto const text = in_forked_child([&] { return text_of<forked_error>(use); });
    EXPECT_EQ(text.rfind("This process was forked after", 0), 0U) << text;
  }
}

TEST_F(cuda_process, that_was_forked_unmaps_its_copies_of_pages) {
  host_buffer pageable{std::size_t{1} << 20U, memory_kind::pageable, 0};
  note_process();
  auto const text = in_forked_child([&] {
    pageable.close();
    return std::string{pageable.address() == 0 ? "closed" : "open"};
  });
  EXPECT_EQ(text, "closed");
}

/// The first process that uses CUDA is noted once, so this needs its own process.
TEST(cuda_process_at_first, can_be_a_forked_child_if_its_parent_did_not_use_cuda) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto const fork_and_use = [] {
    std::cerr << in_forked_child([] {
      note_process();
      return std::string{same_process() ? "used in the child" : "refused"};
    });
    std::_Exit(0);
  };
  EXPECT_EXIT(fork_and_use(), ::testing::ExitedWithCode(0), "used in the child");
}

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

TEST(cuda_threads, run_with_the_signals_blocked_that_are_not_their_own_faults) {
  sigset_t found{};
  start_thread("pyxfer-test", [&] { found = signal_mask(); }).join();
  for (auto const signal : {SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGCHLD, SIGUSR1, SIGUSR2, SIGPIPE}) {
    EXPECT_EQ(sigismember(&found, signal), 1) << signal;
  }
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

TEST(cuda_threads, have_the_first_15_characters_of_their_name) {
  std::vector<std::string> found;
  for (auto const* const name : {"pyxfer-test", "pyxfer-0123456789"}) {
    start_thread(name, [&] { found.push_back(name_of_this_thread()); }).join();
  }
  EXPECT_EQ(found, (std::vector<std::string>{"pyxfer-test", "pyxfer-01234567"}));
}

}  // namespace
}  // namespace pyxfer::tests
