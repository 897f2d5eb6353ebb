#include "links/start_together.hpp"

#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace pyxfer {
namespace {

constexpr std::chrono::duration<double> interruption_period{interruption_period_s};

}  // namespace

start_together::start_together(std::vector<flow*> const& flows, bool by_kernels, double timeout_s)
    : flows_{flows}, timeout_s_{timeout_s} {
  auto const has_kernels = [](flow const* each) { return each->with() != nullptr; };
  by_kernels_ = by_kernels && timeout_s > 0 && std::all_of(flows.begin(), flows.end(), has_kernels);
}

void start_together::run(std::function<void(std::size_t)> const& work,
                         interruption const& interrupted) {
  std::vector<std::thread> threads;
  try {
    hold();
    threads.reserve(flows_.size());
    for (std::size_t i = 0; i < flows_.size(); ++i) {
      threads.push_back(start_thread("pyxfer-flow", [this, &work, i] {
        try {
          work(i);
        } catch (...) { fail(std::current_exception()); }
        std::scoped_lock const held{mutex_};
        ++finished_;
        changed_.notify_all();
      }));
    }
    await(interrupted, [this] { return waiting_ == flows_.size(); });
    start();
    await(interrupted, [this] { return finished_ == flows_.size(); });
  } catch (...) { fail(std::current_exception()); }
  open_gate();
  for (auto& thread : threads) { thread.join(); }
  if (fault_) { std::rethrow_exception(fault_); }
}

void start_together::hold() {
  if (timeout_s_ <= 0) { return; }
  auto& first = *flows_.front();
  if (by_kernels_) {
    auto& flag = first.gate_flag();
    flag.store(0);
    for (auto* const each : flows_) {
      each->share_words(first);
      device_guard const guard{each->plan().device};
      each->gate_late().store(0);
      each->with()->hold(reinterpret_cast<std::uintptr_t>(&flag),
                         reinterpret_cast<std::uintptr_t>(&each->gate_late()), timeout_s_,
                         each->on());
    }
    return;
  }
  device_guard const guard{first.plan().device};
  gate_ = std::make_unique<gate>(first.on(), timeout_s_);
  auto& passed = first.end_mark(0);  // free until the first item has been queued
  passed.record(first.on());
  for (auto* const each : flows_) {
    if (each != &first) { passed.hold(each->on()); }
  }
}

void start_together::open_gate() noexcept {
  if (by_kernels_) { flows_.front()->gate_flag().store(1, std::memory_order_release); }
  if (gate_) { gate_->open(); }
}

bool start_together::was_late(flow const& one) const {
  if (by_kernels_) { return one.gate_late().load(std::memory_order_acquire) != 0; }
  return gate_ && gate_->timed_out();
}

bool start_together::wait_for_all() noexcept {
  std::unique_lock held{mutex_};
  ++waiting_;
  changed_.notify_all();
  changed_.wait(held, [this] { return opened_at_ || ended(); });
  return opened_at_.has_value();
}

host_clock::time_point start_together::opened_at() const noexcept {
  std::scoped_lock const held{mutex_};
  return *opened_at_;
}

void start_together::start() noexcept {
  std::scoped_lock const held{mutex_};
  if (ended()) { return; }
  opened_at_ = host_clock::now();
  open_gate();
  changed_.notify_all();
}

/// Ends the run; the first error is kept.
void start_together::fail(std::exception_ptr fault) noexcept {
  std::scoped_lock const held{mutex_};
  if (!fault_) { fault_ = std::move(fault); }
  ended_.store(true, std::memory_order_relaxed);
  changed_.notify_all();
}

/// Returns when it is done, or the run has ended. Asks for an interruption without the mutex,
/// because the answer may take long.
template <typename Done>
void start_together::await(interruption const& interrupted, Done const& done) {
  std::unique_lock held{mutex_};
  while (!changed_.wait_for(held, interruption_period, [&] { return done() || ended(); })) {
    if (!interrupted) { continue; }
    held.unlock();
    if (interrupted()) { throw cancelled_error("cancelled while flows were running"); }
    held.lock();
  }
}

}  // namespace pyxfer
