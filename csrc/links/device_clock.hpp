#pragma once

#include "cuda/stream.hpp"
#include "cuda/wait.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace pyxfer {

/// Places the events of one device on the host's clock.
///
/// The time between two events is the device's, so its precision does not depend on the error. All
/// events are compared with one reference, so events of one device have no error between them.
class device_clock {
 public:
  /// The stream must be idle.
  device_clock(int device, stream_view on, patience const& limit);

  /// Compares the clocks once more, at the end of a run: the error then includes how far they have
  /// drifted apart. The stream must be idle.
  void compare_again(stream_view on, patience const& limit);

  [[nodiscard]] int device() const noexcept { return device_; }
  /// By the host's steady clock. The device must have passed the event.
  [[nodiscard]] std::int64_t host_ns(event const& at) const;
  /// At most this far is an event from its place.
  [[nodiscard]] double error_ns() const noexcept { return error_ns_; }

  void close();

 private:
  struct reading {
    double middle_ns;
    double half_trip_ns;
  };
  [[nodiscard]] static reading read(event& mark, stream_view on, patience const& limit);

  int device_;
  std::array<event, 2> marks_;
  std::size_t reference_{0};
  double origin_ns_{};
  double error_ns_{std::numeric_limits<double>::infinity()};
};

/// The host's steady clock in nanoseconds.
[[nodiscard]] inline std::int64_t steady_ns(host_clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

}  // namespace pyxfer
