#include "cuda/process.hpp"

#include "cuda/error.hpp"

#include <unistd.h>

#include <atomic>

namespace pyxfer {
namespace {

std::atomic<pid_t> first_user{0};

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

}  // namespace pyxfer
