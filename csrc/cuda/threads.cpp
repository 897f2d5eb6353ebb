#include "cuda/threads.hpp"

#include <pthread.h>

#include <csignal>
#include <string>
#include <utility>

namespace pyxfer {
namespace {

/// pthread_setname_np refuses a longer name.
constexpr std::size_t longest_name = 15;

/// All signals except those of a fault in the thread itself, which faulthandler and sanitizers
/// report. If those were blocked, the kernel would kill the process without a report.
sigset_t signals_from_outside() noexcept {
  sigset_t found;
  sigfillset(&found);
  for (auto const own : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP}) {
    sigdelset(&found, own);
  }
  return found;
}

class signals_blocked {
 public:
  signals_blocked() noexcept {
    auto const blocked = signals_from_outside();
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~signals_blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  signals_blocked(signals_blocked const&) = delete;
  signals_blocked& operator=(signals_blocked const&) = delete;
  signals_blocked(signals_blocked&&) = delete;
  signals_blocked& operator=(signals_blocked&&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

std::thread start_thread(char const* name, std::function<void()> run) {
  signals_blocked const blocked;
  return std::thread{
      [short_name = std::string{name}.substr(0, longest_name), work = std::move(run)] {
        pthread_setname_np(pthread_self(), short_name.c_str());
        work();
      }};
}

}  // namespace pyxfer
