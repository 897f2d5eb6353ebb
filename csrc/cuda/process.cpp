#include "cuda/process.hpp"

#include "cuda/error.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <string>
#include <utility>

namespace pyxfer {
namespace {

std::atomic<pid_t> first_user{0};

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

bool same_process() noexcept {
  auto const user = first_user.load(std::memory_order_relaxed);
  return user == 0 || user == ::getpid();
}

void note_process() {
  auto const self = ::getpid();  // only once: it is a system call, and every transfer comes here
  pid_t user = 0;
  if (!first_user.compare_exchange_strong(user, self, std::memory_order_relaxed) && user != self) {
    throw forked_error(
        "This process was forked after its parent had used CUDA, and CUDA does not survive a fork. "
        "Start workers with multiprocessing.get_context(\"spawn\"), or use pyxfer only after the "
        "fork.");
  }
}

std::thread start_thread(char const* name, std::function<void()> run) {
  signals_blocked const blocked;
  return std::thread{
      [short_name = std::string{name}.substr(0, longest_name), work = std::move(run)] {
        pthread_setname_np(pthread_self(), short_name.c_str());
        work();
      }};
}

}  // namespace pyxfer
