#pragma once

#include "copy/bench.hpp"
#include "copy/issue.hpp"
#include "copy/sample.hpp"

#include <functional>

namespace pyxfer {

/// A window of transfers queued behind a gate, between two events: the device's time alone. For
/// page-locked memory only: a pageable copy waits for its stream, and so would wait for the gate.
[[nodiscard]] sample time_gated(bench& with, issue_mode mode, lane const& along, window_plan plan);

/// One transfer between two events on its own stream, not gated.
[[nodiscard]] sample time_on_stream(bench& with, issue_mode mode, lane const& along,
                                    std::size_t slot);

/// A call that copies and waits for it, between two events on an idle stream, the device drained
/// before and after.
[[nodiscard]] sample time_drained(bench& with, std::function<void()> const& copy);

/// One cudaMemcpy between two events on an idle stream, the device drained before and after.
[[nodiscard]] sample time_drained(bench& with, lane const& along, std::size_t slot);

}  // namespace pyxfer
