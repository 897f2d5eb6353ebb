#pragma once

#include "cuda/event.hpp"
#include "cuda/stream.hpp"
#include "cuda/wait.hpp"

#include <cstddef>
#include <vector>

namespace pyxfer {

/// The streams and events that timed copies use again and again; one thread at a time, except for
/// close().
class bench {
 public:
  bench(int device, std::size_t streams, patience limit);

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] patience const& limit() const noexcept { return limit_; }
  [[nodiscard]] std::size_t width() const noexcept { return streams_.size(); }
  [[nodiscard]] stream_view on(std::size_t index) const { return streams_.at(index).view(); }
  [[nodiscard]] event& mark(std::size_t index) { return events_.at(index); }

  /// Streams after the first begin only when the first has come to here ...
  void fork(event& at);
  /// ... and the first goes on only when the others have come to here.
  void join();
  /// Every stream goes on only when all have come to here.
  void meet();
  /// Wait a moment for whatever an aborted operation left queued; a release that follows must not
  /// meet a running copy.
  void drain() noexcept;

  void close();
  void abandon() noexcept;

  /// Marks that every operation may use.
  static constexpr std::size_t start_mark = 0;
  static constexpr std::size_t stop_mark = 1;
  static constexpr std::size_t fork_mark = 2;
  static constexpr std::size_t side_marks = 3;  ///< four for each side of a copy both ways
  static constexpr std::size_t own_marks = 11;  ///< after these, one mark a stream for join()

 private:
  int device_;
  patience limit_;
  std::vector<stream> streams_;
  std::vector<event> events_;
};

/// Drains the bench when an operation ends by an exception. Declare it before the gate: the gate
/// must open first.
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
