#pragma once

#include "copy/bench.hpp"
#include "copy/lane.hpp"

#include <cstddef>
#include <functional>
#include <string>

namespace pyxfer {

/// How transfers are queued; the words are those of the documents.
enum class issue_mode {
  async,  ///< cudaMemcpyAsync on one stream
  split,  ///< each transfer divided over all streams of the bench
  batch   ///< all transfers of a window in one cudaMemcpyBatchAsync
};

[[nodiscard]] issue_mode issue_mode_of(std::string const& word);

/// Queues `count` transfers, beginning with slot `first`.
void issue(bench& streams, issue_mode mode, lane const& along, std::size_t first,
           std::size_t count);

/// Times a window of transfers between two events, queued behind a gate: only the device's time.
/// For page-locked memory only, because a pageable copy would wait for the gate.
[[nodiscard]] sample time_gated(bench& streams, issue_mode mode, lane const& along,
                                window_plan plan);

/// Times `copies` transfers that `issue` queues on streams that are idle before, without a gate:
/// from the first call to the end of the last transfer, by both clocks. So the time contains the
/// calls.
[[nodiscard]] sample time_issued(bench& streams, std::size_t copies,
                                 std::function<void()> const& issue);

/// The same for transfers of one lane, which begin with slot `first`.
[[nodiscard]] sample time_on_stream(bench& streams, issue_mode mode, lane const& along,
                                    std::size_t first, std::size_t copies = 1);

/// Times a call that copies, between two events on an idle stream. The device is drained before and
/// after the call.
[[nodiscard]] sample time_drained(bench& streams, std::function<void()> const& copy);

/// The same for one cudaMemcpy.
[[nodiscard]] sample time_drained(bench& streams, lane const& along, std::size_t slot);

}  // namespace pyxfer
