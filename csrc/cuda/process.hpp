#pragma once

namespace pyxfer {

/// Every use of CUDA calls it first, because CUDA does not survive fork(). The first call notes the
/// process. In a forked child later calls throw `forked_error`, and inherited owners release
/// nothing.
void note_process();

/// Whether handles that were made so far are valid in this process.
[[nodiscard]] bool same_process() noexcept;

}  // namespace pyxfer
