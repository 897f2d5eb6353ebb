#pragma once

#include "copy/bench.hpp"
#include "copy/issue.hpp"
#include "copy/sample.hpp"

#include <functional>

namespace pyxfer {

/// Times a window of transfers between two events, queued behind a gate: only the device's time.
/// For page-locked memory only, because a pageable copy would wait for the gate.
[[nodiscard]] sample time_gated(bench& streams, issue_mode mode, lane const& along,
                                window_plan plan);

/// Times one transfer between two events on its stream, without a gate.
[[nodiscard]] sample time_on_stream(bench& streams, issue_mode mode, lane const& along,
                                    std::size_t slot);

/// Times a call that copies, between two events on an idle stream. The device is drained before and
/// after the call.
[[nodiscard]] sample time_drained(bench& streams, std::function<void()> const& copy);

/// The same for one cudaMemcpy.
[[nodiscard]] sample time_drained(bench& streams, lane const& along, std::size_t slot);

}  // namespace pyxfer
