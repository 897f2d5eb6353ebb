#pragma once

#include <cstdint>

#include "waiting.hpp"

namespace pyxfer::hostrt {

/// An ordered delay. It ends early with `end_delays` and with the loss of the device.
class ordered_delay {
 public:
  explicit ordered_delay(double seconds);

  [[nodiscard]] bool none() const noexcept { return seconds_ <= 0; }

  /// Waits, on the thread that executes what is to be delayed. Returns when that was over: `ready`
  /// without a delay.
  steady::time_point serve(steady::time_point ready = steady::now()) const;

 private:
  double seconds_;
  std::uint64_t generation_;
  std::uint64_t epoch_;
};

/// Ends every delay ordered up to now, also those whose turn has not come.
void end_delays();

}  // namespace pyxfer::hostrt
