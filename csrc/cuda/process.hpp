#pragma once

namespace pyxfer {

/// CUDA does not survive fork(). The first use notes the process; in a forked child every later use
/// throws `forked_error`, and owners inherited from the parent release nothing.
void note_process();

/// Whether this process may call CUDA with what was made so far.
[[nodiscard]] bool same_process() noexcept;

}  // namespace pyxfer
