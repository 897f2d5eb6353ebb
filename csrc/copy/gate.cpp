#include "copy/gate.hpp"

#include "cuda/error.hpp"
#include "cuda/wait.hpp"

#include <atomic>
#include <thread>

namespace pyxfer {

struct gate::state {
  explicit state(double seconds) : timeout_s{seconds} {}
  double timeout_s;
  std::atomic<bool> open{false};
  std::atomic<bool> timed_out{false};
};

gate::gate(stream_view on, double timeout_s) : state_{std::make_shared<state>(timeout_s)} {
  // The callback owns a reference of its own: it may still run when this gate is gone.
  auto held = std::make_unique<std::shared_ptr<state>>(state_);
  PYXFER_TRY(cudaLaunchHostFunc(on.handle(), &gate::hold, held.get()));
  static_cast<void>(held.release());
}

void gate::hold(void* shared_state) {
  std::unique_ptr<std::shared_ptr<state>> const held{
      static_cast<std::shared_ptr<state>*>(shared_state)};
  auto& shared = **held;
  auto const begin = host_clock::now();
  while (!shared.open.load(std::memory_order_acquire)) {
    if (seconds_between(begin, host_clock::now()) > shared.timeout_s) {
      shared.timed_out.store(true, std::memory_order_release);
      return;
    }
    std::this_thread::yield();
  }
}

void gate::open() noexcept { state_->open.store(true, std::memory_order_release); }

bool gate::timed_out() const noexcept { return state_->timed_out.load(std::memory_order_acquire); }

}  // namespace pyxfer
