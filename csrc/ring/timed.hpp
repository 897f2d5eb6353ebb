#pragma once

#include "copy/timed.hpp"
#include "ring/ring.hpp"

namespace pyxfer {

/// One transfer through a ring between two events on an idle stream, the device drained before and
/// after: as `cudaMemcpy` is timed, which it takes the place of.
[[nodiscard]] sample time_drained(bench& with, ring& through, lane const& along, std::size_t slot);

}  // namespace pyxfer
