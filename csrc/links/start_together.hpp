#pragma once

#include "copy/gate.hpp"
#include "cuda/wait.hpp"
#include "links/flow.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace pyxfer {

/// Lets flows begin together: a gate holds their streams, and each has a thread, which queues its
/// first items and then waits. When all wait, the gate is opened. `mutex_` guards all fields below
/// it but `ended_`, which threads read at any time and which orders nothing.
class start_together {
 public:
  /// The gate is a kernel on each stream that polls one word, if `by_kernels` and every flow has
  /// kernels. Else it is one host function, for which the other streams wait, because the driver
  /// runs host functions one at a time. Either opens by itself after `timeout_s`; with 0 there is
  /// no gate.
  start_together(std::vector<flow*> const& flows, bool by_kernels, double timeout_s);

  /// Calls `work` with the number of each flow, in a thread of its own. Returns when all have
  /// ended, and throws the first error, or `cancelled_error` after an interruption. The gate is
  /// then open in any case.
  void run(std::function<void(std::size_t)> const& work, interruption const& interrupted);

  [[nodiscard]] bool by_kernels() const noexcept { return by_kernels_; }
  /// Whether the gate opened by itself. Valid after the work behind it has finished.
  [[nodiscard]] bool was_late(flow const& one) const;

  // For the threads.

  /// Returns when all have called it and the gate is open; false if the run has ended before.
  [[nodiscard]] bool wait_for_all() noexcept;
  /// When the gate was opened.
  [[nodiscard]] host_clock::time_point opened_at() const noexcept;
  /// Whether no more items shall be queued, because of an error or an interruption.
  [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_relaxed); }

 private:
  void hold();
  void open_gate() noexcept;
  void start() noexcept;
  void fail(std::exception_ptr fault) noexcept;
  template <typename Done>
  void await(interruption const& interrupted, Done const& done);

  std::vector<flow*> const& flows_;
  bool by_kernels_;
  double timeout_s_;
  std::unique_ptr<gate> gate_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t waiting_{0};
  std::size_t finished_{0};
  std::optional<host_clock::time_point> opened_at_;
  std::exception_ptr fault_;
  std::atomic<bool> ended_{false};
};

}  // namespace pyxfer
