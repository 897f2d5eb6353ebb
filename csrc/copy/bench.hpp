#pragma once

#include "cuda/stream.hpp"
#include "cuda/wait.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace pyxfer {

/// The result of one timed execution. Times are per transfer: those of a window are divided by its
/// number of transfers.
struct sample {
  double elapsed_s;   ///< between the two events
  double dispatch_s;  ///< by the host's clock, from the call to its return
  /// By the host's clock, from the first call to the end of the last transfer; empty behind a gate,
  /// because the calls are over when the gate opens.
  std::optional<double> wall_s;
  std::size_t copies;
  std::string invalid;  ///< why the sample must not be used; empty if it is valid
};

/// How many transfers a timed window holds, and how many run untimed before it.
struct window_plan {
  std::size_t copies;
  std::size_t warmups;
  std::size_t first_slot;
  std::size_t untimed_bytes{0};  ///< of a warm-up; 0: those of the lane
};

/// The streams and events that timed copies reuse. Only close() may be called by several threads at
/// a time.
class bench {
 public:
  bench(int device, std::size_t streams, patience limit);

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] patience const& limit() const noexcept { return limit_; }
  [[nodiscard]] std::size_t width() const noexcept { return streams_.size(); }
  [[nodiscard]] stream_view on(std::size_t index) const { return streams_.at(index).view(); }
  [[nodiscard]] event& mark(std::size_t index) { return events_.at(index); }

  /// Makes the other streams wait for the work that is now queued on the first.
  void fork(event& at);
  /// Makes the first stream wait for the work that is now queued on the others.
  void join();
  /// Makes every stream wait for the work that is now queued on all of them.
  void meet();
  /// Waits briefly for the work that an aborted operation left queued, so that memory is not
  /// released while a copy uses it.
  void drain() noexcept;

  void close();
  void abandon() noexcept;

  /// Indices of the marks.
  static constexpr std::size_t start_mark = 0;
  static constexpr std::size_t stop_mark = 1;
  static constexpr std::size_t fork_mark = 2;
  static constexpr std::size_t side_marks = 3;  ///< the first of four per side of a copy both ways
  static constexpr std::size_t own_marks = 11;  ///< the first of one per stream, for join()

 private:
  int device_;
  patience limit_;
  std::vector<stream> streams_;
  std::vector<event> events_;
};

/// Drains the bench if an operation ends with an exception. Declare it before the gate, because the
/// gate has to open first.
class drain_guard {
 public:
  explicit drain_guard(bench& used) : bench_{used} {}
  ~drain_guard();
  drain_guard(drain_guard const&) = delete;
  drain_guard& operator=(drain_guard const&) = delete;
  drain_guard(drain_guard&&) = delete;
  drain_guard& operator=(drain_guard&&) = delete;
  void done() noexcept { armed_ = false; }

 private:
  bench& bench_;
  bool armed_{true};
};

}  // namespace pyxfer
