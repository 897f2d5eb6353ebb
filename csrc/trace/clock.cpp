#include "trace/clock.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace pyxfer::trace {
namespace {

constexpr int readings = 16;

std::int64_t host_clock_ns() {
  auto const now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

/// No clock drifts by a thousandth: somebody has set it in between.
bool was_set(clock_comparison const& from, clock_comparison const& to) noexcept {
  constexpr std::int64_t thousand = 1000;
  auto const slack = from.error_ns + to.error_ns;
  auto const moved = std::abs(to.offset_ns() - from.offset_ns());
  return moved > (to.host_ns - from.host_ns) / thousand + slack;
}

std::int64_t distance(std::int64_t at, std::int64_t begin, std::int64_t end) noexcept {
  return std::max({begin - at, at - end, std::int64_t{0}});
}

/// By the offset before or after the clock was set, whichever places it between the comparisons.
std::int64_t within(std::int64_t activity_ns, clock_comparison const& from,
                    clock_comparison const& to) noexcept {
  auto const before = activity_ns + from.offset_ns();
  auto const after = activity_ns + to.offset_ns();
  auto const by_before = distance(before, from.host_ns, to.host_ns);
  return by_before <= distance(after, from.host_ns, to.host_ns) ? before : after;
}

}  // namespace

clock_comparison compare_clocks(std::function<std::int64_t()> const& activity_clock) {
  clock_comparison best;
  best.error_ns = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < readings; ++i) {
    auto const before = host_clock_ns();
    auto const activity = activity_clock();
    auto const half = (host_clock_ns() - before + 1) / 2;
    if (half < best.error_ns) { best = {before + half, activity, half}; }
  }
  return best;
}

std::int64_t host_time(std::int64_t activity_ns, clock_comparison const& from,
                       clock_comparison const& to) noexcept {
  if (activity_ns == 0) { return 0; }
  if (was_set(from, to)) { return within(activity_ns, from, to); }
  if (activity_ns <= from.activity_ns) { return activity_ns + from.offset_ns(); }
  if (activity_ns >= to.activity_ns) { return activity_ns + to.offset_ns(); }
  auto const part = static_cast<double>(activity_ns - from.activity_ns) /
                    static_cast<double>(to.activity_ns - from.activity_ns);
  auto const moved = static_cast<double>(to.offset_ns() - from.offset_ns());
  return activity_ns + from.offset_ns() + std::llround(part * moved);
}

}  // namespace pyxfer::trace
