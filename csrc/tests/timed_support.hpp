#pragma once

#include "copy/timed.hpp"
#include "copy_support.hpp"
#include "engine_support.hpp"

#include <array>

namespace pyxfer::tests {

inline constexpr std::size_t size = 256 * kib;
inline constexpr double crossing_s = 5e-3;
inline constexpr double rate = size / crossing_s;  ///< bytes per second
inline constexpr double rounding = 1e-6;  ///< of an event's time, which is in float milliseconds

inline constexpr std::array every_mode{issue_mode::async, issue_mode::split, issue_mode::batch};

inline void expect_idle(bench const& used) {
  for (std::size_t i = 0; i < used.width(); ++i) {
    EXPECT_EQ(cudaStreamQuery(used.on(i).handle()), cudaSuccess) << "stream " << i;
  }
}

/// A window behind a gate. If another program delays its calls so long that the gate opens by
/// itself, it is tried again.
inline sample time_behind_gate(bench& used, issue_mode mode, lane const& along, window_plan plan) {
  auto found = time_gated(used, mode, along, plan);
  for (int i = 0; i < 20 && !found.invalid.empty(); ++i) {
    found = time_gated(used, mode, along, plan);
  }
  EXPECT_EQ(found.invalid, "");
  return found;
}

/// Expects exactly the modelled time.
inline void expect_exactly(double seconds, double modelled_s) {
  EXPECT_NEAR(seconds, modelled_s, modelled_s * rounding);
}

}  // namespace pyxfer::tests
