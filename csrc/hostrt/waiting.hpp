#pragma once

#include <chrono>
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

}  // namespace pyxfer::hostrt
