#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace pyxfer {

/// What one timed execution gave. Times are those of one transfer: a window of several is divided
/// by their number.
struct sample {
  double elapsed_s;   ///< between the two events
  double dispatch_s;  ///< host clock, from the call to its return
  std::optional<double>
      wall_s;  ///< host clock over the span of the events, where the host paces it
  std::size_t copies;
  std::string invalid;  ///< why it must not be used; empty where it may
};

/// How many transfers a timed window holds, and how many run untimed before it.
struct window_plan {
  std::size_t copies;
  std::size_t warmups;
  std::size_t first_slot;
};

}  // namespace pyxfer
