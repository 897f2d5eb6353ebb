#pragma once

#include "cuda/wait.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>

namespace pyxfer {

// clang-format off
/// Where the threads of a run meet: each arrives when its first items are queued, waits for the
/// opening, and reports its end.
///
/// | field               | written by       | read by        | ordered by              |
/// |---------------------|------------------|----------------|-------------------------|
/// | arrived_, finished_ | flows' threads   | the caller     | mutex_                  |
/// | opened_at_          | the caller       | flows' threads | mutex_                  |
/// | fault_              | any thread       | the caller     | mutex_                  |
/// | ended_              | any thread       | flows' threads | relaxed: it only asks   |
// clang-format on
class meeting {
 public:
  explicit meeting(std::size_t threads) noexcept : threads_{threads} {}

  // For the threads of the flows.

  /// Returns when the gate has been opened; false if it never will be.
  [[nodiscard]] bool arrive_and_wait() noexcept;
  /// When the gate was opened.
  [[nodiscard]] host_clock::time_point opened_at() const noexcept;
  /// Whether no more items shall be queued, because another thread failed or the run was cancelled.
  [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_relaxed); }
  void finish() noexcept;

  // For the caller.

  /// Returns whether all have arrived; false if the run has ended before.
  [[nodiscard]] bool await_arrivals(interruption const& interrupted);
  /// Calls `open`, and lets the threads continue.
  template <typename Open>
  void open(Open const& open) {
    std::scoped_lock const held{mutex_};
    opened_at_ = host_clock::now();
    open();
    opened_ = true;
    changed_.notify_all();
  }
  void await_finishes(interruption const& interrupted);

  // For all.

  /// Ends the run. Threads that wait for an opening that has not come return.
  void end() noexcept;
  /// The same for a fault; the first one is kept.
  void fail(std::exception_ptr fault) noexcept;
  /// The fault that ended the run, if any.
  [[nodiscard]] std::exception_ptr fault() const noexcept;

 private:
  template <typename Done>
  void await(interruption const& interrupted, Done const& done);

  std::size_t const threads_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t arrived_{0};
  std::size_t finished_{0};
  bool opened_{false};
  host_clock::time_point opened_at_;
  std::exception_ptr fault_;
  std::atomic<bool> ended_{false};
};

}  // namespace pyxfer
