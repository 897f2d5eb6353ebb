#pragma once

#include <cstdint>
#include <functional>

namespace pyxfer::trace {

/// What the host's steady clock and the activity clock showed at one moment.
struct clock_comparison {
  std::int64_t host_ns = 0;
  std::int64_t activity_ns = 0;
  /// Half the time between the two readings of the host's clock around it.
  std::int64_t error_ns = 0;

  [[nodiscard]] std::int64_t offset_ns() const noexcept { return host_ns - activity_ns; }
};

/// The tightest of some readings of the activity clock, each between two of the host's.
[[nodiscard]] clock_comparison compare_clocks(std::function<std::int64_t()> const& activity_clock);

/// The host's time of an activity time: between the two comparisons by the line through them,
/// outside by the nearer one. Where the clock was set in between, by the one that makes sense. 0
/// stays 0, which is no time.
[[nodiscard]] std::int64_t host_time(std::int64_t activity_ns, clock_comparison const& from,
                                     clock_comparison const& to) noexcept;

}  // namespace pyxfer::trace
