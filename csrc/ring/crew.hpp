#pragma once

#include "cuda/wait.hpp"

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace pyxfer {

/// Wakes sleeping threads with one system call. Threads that wait on a condition variable would
/// queue for its mutex when they wake. (In C++20 this is std::atomic::wait.)
///
/// `ring` writes rings_, and every thread reads it. The kernel compares it before it lets a thread
/// sleep, so a ring between `rings` and `sleep` is not lost.
class bell {
 public:
  /// Read it before checking whether there is a reason to sleep.
  [[nodiscard]] std::uint32_t rings() const noexcept { return rings_; }
  /// Sleeps until the bell has rung since `rings` returned `since`. It may also return spuriously.
  void sleep(std::uint32_t since) noexcept;
  /// Wakes at most that many sleeping threads.
  void ring(int most) noexcept;

 private:
  std::atomic<std::uint32_t> rings_{0};
};

// clang-format off
/// Threads that sleep while they have no work.
///
/// Work is offered with a number of seats. A thread that wakes takes a free seat. Threads that wake
/// too late find none, and `run` does not wait for them.
///
/// | field    | written by                           | read by              | ordered by                            |
/// |----------|--------------------------------------|----------------------|---------------------------------------|
/// | work_    | the caller                           | threads with a seat  | seats_, which is offered later        |
/// | seats_   | the caller, threads that take one    | the same             | itself                                |
/// | done_    | threads, after their work            | the caller           | itself: it sees what they wrote       |
/// | awaited_ | the caller, before it looks at done_ | threads, after done_ | itself: one of the two sees the other |
/// | alerted_ | `alert`, the thread that it wakes    | threads              | itself: it is taken once              |
/// | expects_ | `alert`, the caller                  | every thread         | relaxed: it only prolongs a wait      |
/// | ended_   | `close`                              | threads              | itself                                |
// clang-format on
class crew {
 public:
  using seat_work = std::function<void(int seat)>;

  /// Starts the threads, with that context current.
  crew(CUcontext context, int threads, double spin_s);
  ~crew() { close(); }
  crew(crew const&) = delete;
  crew& operator=(crew const&) = delete;
  crew(crew&&) = delete;
  crew& operator=(crew&&) = delete;

  /// Runs the work in this thread at seat 0, and at seats 1 to `others` in the threads that wake in
  /// time. Returns when all of them are done. Only one thread may call it at a time. The work must
  /// not throw.
  void run(int others, seat_work const& work);

  /// Wakes the threads for work that comes soon; they look for it for 0.3 ms. Any thread may call
  /// it.
  void alert() noexcept;

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
  std::atomic<int> seats_{0};  ///< number of free seats; the last one to be taken is seat 1
  std::atomic<int> done_{0};
  std::atomic<bool> awaited_{false};  ///< the caller sleeps until the threads are done
  std::atomic<bool> alerted_{false};  ///< the next thread to wake wakes the others
  /// Until then threads look for work.
  std::atomic<host_clock::time_point> expects_{host_clock::time_point{}};
  std::atomic<bool> ended_{false};
  std::vector<std::thread> threads_;
};

}  // namespace pyxfer
