#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

namespace pyxfer::hostrt {

using steady = std::chrono::steady_clock;

/// Long enough to bridge the gap between two calls of a tight loop, short enough that idle streams
/// do not eat a core.
inline constexpr std::chrono::microseconds spin_limit{50};

/// Asks `done` for a short while, giving the core away between two questions.
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

/// `seconds` as a duration of the steady clock; negative and absurdly long ones are cut.
[[nodiscard]] steady::duration as_duration(double seconds) noexcept;

/// An ordered delay. It ends early with `end_delays` and with the loss of the device.
class ordered_delay {
 public:
  explicit ordered_delay(double seconds);

  [[nodiscard]] bool none() const noexcept { return seconds_ <= 0; }

  /// Waits, on the thread that executes what is to be delayed. Returns when that was over: `ready`
  /// without a delay.
  // NOLINTNEXTLINE(modernize-use-nodiscard): some callers only wait
  steady::time_point serve(steady::time_point ready = steady::now()) const;

 private:
  double seconds_;
  std::uint64_t generation_;
  std::uint64_t epoch_;
};

/// Ends every delay ordered up to now, also those whose turn has not come.
void end_delays();

}  // namespace pyxfer::hostrt
