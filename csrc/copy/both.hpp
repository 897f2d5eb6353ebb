#pragma once

#include "copy/bench.hpp"
#include "copy/lane.hpp"
#include "copy/sample.hpp"

#include <array>
#include <cstddef>

namespace pyxfer {

/// Transfers both ways at once. `tails` are untimed transfers after the window of each side, so
/// that the other side's window never runs alone.
struct both_plan {
  std::size_t copies;
  std::size_t warmups;
  std::array<std::size_t, 2> tails;
  std::size_t first_slot;
};

/// The h2d lane and the d2h lane, in this order; the bench needs two streams.
using both_lanes = std::array<lane, 2>;
using both_samples = std::array<sample, 2>;

/// Page-locked memory: both sides queued behind one gate. A side's sample is
/// invalid where the other was idle during a part of it.
[[nodiscard]] both_samples time_both_gated(bench& with, both_lanes const& along, both_plan plan);

/// Pageable memory, whose copies block: a thread a side, each going on until the other has its
/// window. Where a much quicker side gives that up, the other's sample is invalid.
[[nodiscard]] both_samples time_both_threads(bench& with, both_lanes const& along,
                                             std::size_t copies, std::size_t first_slot);

}  // namespace pyxfer
