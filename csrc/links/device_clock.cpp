#include "links/device_clock.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pyxfer {
namespace {

/// The quickest of some readings has the smallest error.
constexpr int readings = 8;

constexpr double ns_per_s = 1e9;
constexpr char const* idle_event = "an event on an idle stream";

}  // namespace

device_clock::device_clock(int device, stream_view on, patience const& limit)
    : device_{device}, marks_{event{device}, event{device}} {
  device_guard const guard{device_};
  std::size_t free = 0;
  for (int i = 0; i < readings; ++i) {
    auto const found = read(marks_.at(free), on, limit);
    if (found.half_trip_ns >= error_ns_) { continue; }
    reference_ = free;
    free = 1 - reference_;
    origin_ns_ = found.middle_ns;
    error_ns_ = found.half_trip_ns;
  }
}

device_clock::reading device_clock::read(event& mark, stream_view on, patience const& limit) {
  auto const called = host_clock::now();
  mark.record(on);
  wait(mark, limit, idle_event);
  auto const passed = host_clock::now();
  auto const half = static_cast<double>(steady_ns(passed) - steady_ns(called)) / 2;
  return {static_cast<double>(steady_ns(called)) + half, half};
}

void device_clock::compare_again(stream_view on, patience const& limit) {
  device_guard const guard{device_};
  auto& later = marks_.at(1 - reference_);
  auto quickest = std::numeric_limits<double>::infinity();
  double apart_ns = 0;
  for (int i = 0; i < readings; ++i) {
    auto const found = read(later, on, limit);
    if (found.half_trip_ns >= quickest) { continue; }
    quickest = found.half_trip_ns;
    apart_ns = std::abs(static_cast<double>(host_ns(later)) - found.middle_ns);
  }
  error_ns_ = std::max(error_ns_, apart_ns + quickest);
}

std::int64_t device_clock::host_ns(event const& at) const {
  return std::llround(origin_ns_ + at.seconds_since(marks_.at(reference_)) * ns_per_s);
}

void device_clock::close() {
  closing all;
  for (auto& mark : marks_) { all.close(mark); }
  all.finish();
}

}  // namespace pyxfer
