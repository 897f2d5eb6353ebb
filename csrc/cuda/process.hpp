#pragma once

#include <functional>
#include <thread>

namespace pyxfer {

/// Every use of CUDA calls it first, because CUDA does not survive fork(). The first call notes the
/// process. In a forked child later calls throw `forked_error`, and inherited owners release
/// nothing.
void note_process();

/// Whether handles that were made so far are valid in this process.
[[nodiscard]] bool same_process() noexcept;

/// Starts a thread of the engine. Signals from other processes are blocked in it, because the
/// program's handlers must not run on it, and a thread inherits its creator's mask. Debuggers and
/// profilers show `name`, of which the kernel keeps 15 characters.
[[nodiscard]] std::thread start_thread(char const* name, std::function<void()> run);

}  // namespace pyxfer
