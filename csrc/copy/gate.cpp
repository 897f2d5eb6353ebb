#include "copy/gate.hpp"

#include "cuda/error.hpp"
#include "cuda/wait.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace pyxfer {
namespace {

/// Owns the states of callbacks that have not run yet. A callback may run after its gate is
/// destroyed, and on a lost device it never runs.
class callback_states {
 public:
  void keep(std::shared_ptr<void> const& kept) {
    std::scoped_lock const held{lock_};
    kept_.emplace(kept.get(), kept);
  }
  std::shared_ptr<void> take(void* wanted) {
    std::scoped_lock const held{lock_};
    auto const found = kept_.find(wanted);
    auto taken = std::move(found->second);
    kept_.erase(found);
    return taken;
  }

 private:
  std::mutex lock_;
  std::map<void*, std::shared_ptr<void>> kept_;
};

/// Never destroyed: a callback may run while the process ends.
callback_states& states() {
  static auto* const made = new callback_states;
  return *made;
}

}  // namespace

struct gate::state {
  explicit state(double seconds) : timeout_s{seconds} {}
  double timeout_s;
  std::atomic<bool> open{false};
  std::atomic<bool> timed_out{false};
};

gate::gate(stream_view on, double timeout_s) : state_{std::make_shared<state>(timeout_s)} {
  states().keep(state_);
  auto const status = cudaLaunchHostFunc(on.handle(), &gate::hold, state_.get());
  if (status != cudaSuccess) { static_cast<void>(states().take(state_.get())); }
  PYXFER_TRY_STATUS("cudaLaunchHostFunc", status);
}

void gate::hold(void* shared_state) {
  auto const kept = states().take(shared_state);
  auto& shared = *static_cast<state*>(kept.get());
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
