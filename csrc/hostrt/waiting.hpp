#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

namespace pyxfer::hostrt {

using steady = std::chrono::steady_clock;

/// Longer than the gap between two calls of a tight loop, and short enough that idle streams do not
/// occupy a core.
inline constexpr std::chrono::microseconds spin_limit{50};

/// Polls `done` briefly, and yields the core between two checks. Returns whether it was true.
template <typename Done>
bool spin_until(Done const& done) {
  auto const deadline = steady::now() + spin_limit;
  while (!done()) {
    if (steady::now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Sleeps until `deadline`, or until `ended` holds after a `wake_pauses`.
void pause_until(steady::time_point deadline, std::function<bool()> const& ended);

void wake_pauses();

/// Converts to a duration of the steady clock, between 0 and a million seconds.
[[nodiscard]] steady::duration as_duration(double seconds) noexcept;

/// A delay that a test has ordered. `end_delays` and the loss of the thread's device end it early.
class ordered_delay {
 public:
  explicit ordered_delay(double seconds);

  [[nodiscard]] bool none() const noexcept { return seconds_ <= 0; }

  /// Waits, in the thread that executes the delayed work. Returns the time at which the wait ended,
  /// or `ready` if there is no delay.
  // NOLINTNEXTLINE(modernize-use-nodiscard): some callers only wait
  steady::time_point serve(steady::time_point ready = steady::now()) const;

 private:
  double seconds_;
  std::uint64_t generation_;
};

/// Ends every delay that was ordered so far, including those that have not begun.
void end_delays();

}  // namespace pyxfer::hostrt
