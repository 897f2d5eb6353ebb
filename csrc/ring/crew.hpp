#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace pyxfer {

/// Wakes sleeping threads with one system call. The threads of a condition variable would queue for
/// its mutex. (C++20 has it as std::atomic::wait.)
///
/// rings_ is written by `ring` and read by every thread. The kernel compares it before it lets a
/// thread sleep, so a ring between `rings` and `sleep` is not lost.
class bell {
 public:
  /// Read it before looking whether there is a reason to sleep.
  [[nodiscard]] std::uint32_t rings() const noexcept { return rings_; }
  /// Returns when the bell has rung since then, or spuriously.
  void sleep(std::uint32_t since) noexcept;
  /// Wakes at most that many sleeping threads.
  void ring(int most) noexcept;

 private:
  std::atomic<std::uint32_t> rings_{0};
};

// clang-format off
/// Threads that sleep while there is nothing to do.
///
/// A piece of work has seats. A thread that wakes takes the next free one; threads that wake too
/// late find none, and `run` does not wait for them.
///
/// | field    | written by                           | read by              | ordered by                            |
/// |----------|--------------------------------------|----------------------|---------------------------------------|
/// | work_    | the caller                           | threads with a seat  | seats_, which is offered later        |
/// | seats_   | the caller, threads that take one    | the same             | itself                                |
/// | done_    | threads, after their work            | the caller           | itself: it sees what they wrote       |
/// | awaited_ | the caller, before it looks at done_ | threads, after done_ | itself: one of the two sees the other |
/// | ended_   | `close`                              | threads              | itself                                |
// clang-format on
class crew {
 public:
  using seat_work = std::function<void(int seat)>;

  /// Starts them, with that context current.
  crew(CUcontext context, int threads, double spin_s);
  ~crew() { close(); }
  crew(crew const&) = delete;
  crew& operator=(crew const&) = delete;
  crew(crew&&) = delete;
  crew& operator=(crew&&) = delete;

  /// Does the work in this thread at seat 0, and in the threads that wake in time at seats 1 to
  /// `others`; returns when all of them have returned from it. One caller at a time. The work must
  /// not throw.
  void run(int others, seat_work const& work);

  /// Ends the threads; a second time does nothing.
  void close() noexcept;

 private:
  void start(CUcontext context);
  void serve();
  [[nodiscard]] int take_seat() noexcept;
  void await_done(int seats);
  template <typename Done>
  void spin_until(Done const& done) const;

  double spin_s_;
  bell work_came_;
  bell one_done_;
  seat_work const* work_{};
  std::atomic<int> seats_{0};  ///< still free; the last one is seat 1
  std::atomic<int> done_{0};
  std::atomic<bool> awaited_{false};  ///< the caller sleeps until they are done
  std::atomic<bool> ended_{false};
  std::vector<std::thread> threads_;
};

}  // namespace pyxfer
