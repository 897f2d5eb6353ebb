#pragma once

#include "ring/bell.hpp"

#include <cuda.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>
#include <vector>

namespace pyxfer {

/// Threads that stay, and sleep while there is nothing to do.
///
/// A piece of work has seats, each taken by whichever thread comes first; those that wake up too
/// late find none left, and nobody waits for them.
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

  /// Does the work in this thread, at seat 0, and in as many others as come in time, at seats from
  /// 1 to `others`; returns when all that came are done. For one caller at a time. The work must
  /// not throw.
  void run(int others, seat_work const& work);

  /// Ends the threads; a second time does nothing.
  void close() noexcept;

 private:
  void start(CUcontext context);
  void serve();
  [[nodiscard]] int take_seat() noexcept;
  void await_return(int seats);
  template <typename Done>
  void spin_until(Done const& done) const;

  double spin_s_;
  bell came_;
  bell left_;
  seat_work const* work_{};
  std::atomic<int> seats_{0};  ///< still free; the last one is seat 1
  std::atomic<int> done_{0};
  std::atomic<bool> awaited_{false};  ///< the caller sleeps until they are
  std::atomic<bool> ended_{false};
  std::vector<std::thread> threads_;
};

}  // namespace pyxfer
