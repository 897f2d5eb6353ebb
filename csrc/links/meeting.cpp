#include "links/meeting.hpp"

#include "cuda/error.hpp"

#include <chrono>
#include <utility>

namespace pyxfer {
namespace {

constexpr std::chrono::duration<double> interruption_period{interruption_period_s};

}  // namespace

bool meeting::arrive_and_wait() noexcept {
  std::unique_lock held{mutex_};
  ++arrived_;
  changed_.notify_all();
  changed_.wait(held, [this] { return opened_ || ended(); });
  return opened_;
}

host_clock::time_point meeting::opened_at() const noexcept {
  std::scoped_lock const held{mutex_};
  return opened_at_;
}

void meeting::finish() noexcept {
  std::scoped_lock const held{mutex_};
  ++finished_;
  changed_.notify_all();
}

bool meeting::await_arrivals(interruption const& interrupted) {
  await(interrupted, [this] { return arrived_ == threads_ || ended(); });
  return !ended();
}

void meeting::await_finishes(interruption const& interrupted) {
  await(interrupted, [this] { return finished_ == threads_; });
}

void meeting::end() noexcept {
  std::scoped_lock const held{mutex_};
  ended_.store(true, std::memory_order_relaxed);
  changed_.notify_all();
}

void meeting::fail(std::exception_ptr fault) noexcept {
  {
    std::scoped_lock const held{mutex_};
    if (!fault_) { fault_ = std::move(fault); }
  }
  end();
}

std::exception_ptr meeting::fault() const noexcept {
  std::scoped_lock const held{mutex_};
  return fault_;
}

/// Asks for an interruption without the mutex, because the answer may take long.
template <typename Done>
void meeting::await(interruption const& interrupted, Done const& done) {
  std::unique_lock held{mutex_};
  while (!changed_.wait_for(held, interruption_period, done)) {
    if (!interrupted || ended()) { continue; }
    held.unlock();
    if (interrupted()) {
      fail(std::make_exception_ptr(cancelled_error("cancelled while flows were running")));
    }
    held.lock();
  }
}

}  // namespace pyxfer
