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
  pid_t none = 0;
  first_user.compare_exchange_strong(none, ::getpid(), std::memory_order_relaxed);
  if (!same_process()) {
    throw forked_error(
        "This process was forked after its parent had used CUDA, and CUDA does not survive a fork. "
        "Start workers with multiprocessing.get_context(\"spawn\"), or use pyxfer only after the "
        "fork.");
  }
}

}  // namespace pyxfer
