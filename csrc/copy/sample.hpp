#pragma once

#include <cstddef>
#include <optional>
#include <string>

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

}  // namespace pyxfer
