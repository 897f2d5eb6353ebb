#pragma once

#include "copy/bench.hpp"
#include "copy/lane.hpp"

#include <array>
#include <cstddef>

namespace pyxfer {

/// Transfers in both directions at once. `tails` is the number of untimed transfers after the
/// window of each side: they keep this side busy while the other side's window ends.
struct both_plan {
  std::size_t copies;
  std::size_t warmups;
  std::array<std::size_t, 2> tails;
  std::size_t first_slot;
  std::size_t untimed_bytes{0};  ///< of a warm-up and of a copy of a tail; 0: those of the lane
};

/// The h2d lane and the d2h lane, in this order; the bench needs two streams.
using both_lanes = std::array<lane, 2>;
using both_samples = std::array<sample, 2>;

/// For page-locked memory: both sides are queued behind one gate. A side's sample is invalid if the
/// other side was idle during a part of it.
[[nodiscard]] both_samples time_both_gated(bench& streams, both_lanes const& along, both_plan plan);

/// For page-locked memory: the calls alternate between the sides, without a gate. The one sample is
/// for both sides: it ends when the later one has ended.
[[nodiscard]] sample time_both_issued(bench& streams, both_lanes const& along, std::size_t copies,
                                      std::size_t first_slot);

/// For pageable memory, whose copies block: each side has a thread, which continues to copy until
/// the other side's window has ended. If a much faster side gives up waiting, the sample of the
/// other side is invalid.
[[nodiscard]] both_samples time_both_threads(bench& streams, both_lanes const& along,
                                             std::size_t copies, std::size_t first_slot);

}  // namespace pyxfer
