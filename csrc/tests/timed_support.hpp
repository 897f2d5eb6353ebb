#pragma once

#include "copy/timed.hpp"
#include "copy_support.hpp"
#include "engine_support.hpp"

#include <array>

namespace pyxfer::tests {

/// Bytes per second; much slower than any memory, so that a busy core does not change times.
inline constexpr double rate = 200e6;
inline constexpr std::size_t size = mib;
inline constexpr double crossing_s = static_cast<double>(size) / rate;
/// The rounding of an event's time, which is in float milliseconds.
inline constexpr double rounding = 1 - 1e-6;
/// How much longer than its modelled time a copy may take on a busy machine.
inline constexpr double slack = 3;

inline constexpr std::array every_mode{issue_mode::async, issue_mode::split, issue_mode::batch};

inline void expect_idle(bench const& used) {
  for (std::size_t i = 0; i < used.width(); ++i) {
    EXPECT_EQ(cudaStreamQuery(used.on(i).handle()), cudaSuccess) << "stream " << i;
  }
}

/// The fastest of a few attempts, because another program may use the core during one of them.
template <typename Try>
sample quickest_of(Try const& attempt) {
  auto best = attempt();
  for (int i = 0; i < 4; ++i) {
    auto const next = attempt();
    if (next.elapsed_s < best.elapsed_s) { best = next; }
  }
  return best;
}

/// Runs an action on its own bench. It must not leave a stream blocked, even if it fails.
template <typename Run>
void run_on_bench(std::size_t streams, Run const& run) {
  bench used{0, streams, patience{20}};
  try {
    run(used);
  } catch (cuda_error const&) {
    expect_idle(used);
    throw;
  }
}

}  // namespace pyxfer::tests
