#pragma once

#include <cstdint>

#include "waiting.hpp"

namespace pyxfer::hostrt {

/// The activity clock, which counts from 1970 as CUPTI's does, and does not agree with the steady
/// clock where a test has it disagree.
[[nodiscard]] std::uint64_t activity_time(steady::time_point at) noexcept;

/// From now on it is `offset_ns` off, and moves by so much a second.
void skew_activity_clock(std::int64_t offset_ns, double ns_per_s);

}  // namespace pyxfer::hostrt
