#include "bind/bind.hpp"
#include "cuda/wait.hpp"

#include <atomic>
#include <chrono>
#include <thread>

namespace pyxfer {
namespace {

/// The thread that finalizes the interpreter; a default id before finalization.
std::atomic<std::thread::id> ending{};
std::atomic<int> coming_back{0};

bool is_parked() {
  auto const by = ending.load();
  return by != std::thread::id{} && by != std::this_thread::get_id();
}

}  // namespace

// If a thread counts itself before `ending` is set, park_threads_at_exit waits for it: the accesses
// to both variables are sequentially consistent.
gil_released::~gil_released() {
  ++coming_back;
  if (is_parked()) {
    --coming_back;
    while (true) { std::this_thread::sleep_for(std::chrono::hours{1}); }
  }
  PyEval_RestoreThread(state_);
  --coming_back;
}

void park_threads_at_exit(double seconds) {
  ending = std::this_thread::get_id();
  polling const since;
  while (coming_back != 0 && since.waited_s() < seconds) {
    gil_released const others_first;  // counts itself only while it takes the GIL back
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

}  // namespace pyxfer
