#include "activity_clock.hpp"

#include <cmath>
#include <mutex>

namespace pyxfer::hostrt {
namespace {

std::int64_t nanoseconds(std::chrono::nanoseconds span) noexcept { return span.count(); }

struct skewed_clock {
  std::mutex mutex;
  std::int64_t offset_ns = 0;
  double ns_per_s = 0;
  steady::time_point since;
  std::int64_t const steady_to_1970_ns =
      nanoseconds(std::chrono::system_clock::now().time_since_epoch()) -
      nanoseconds(steady::now().time_since_epoch());
};

skewed_clock& the_clock() {
  static auto& clock = *new skewed_clock;
  return clock;
}

}  // namespace

std::uint64_t activity_time(steady::time_point at) noexcept {
  auto& clock = the_clock();
  std::scoped_lock const lock{clock.mutex};
  auto const moved_s = std::chrono::duration<double>(at - clock.since).count();
  auto const drift = clock.ns_per_s == 0 ? 0 : std::llround(moved_s * clock.ns_per_s);
  return static_cast<std::uint64_t>(nanoseconds(at.time_since_epoch()) + clock.steady_to_1970_ns +
                                    clock.offset_ns + drift);
}

void skew_activity_clock(std::int64_t offset_ns, double ns_per_s) {
  auto& clock = the_clock();
  std::scoped_lock const lock{clock.mutex};
  clock.offset_ns = offset_ns;
  clock.ns_per_s = ns_per_s;
  clock.since = steady::now();
}

}  // namespace pyxfer::hostrt
