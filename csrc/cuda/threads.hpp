#pragma once

#include <functional>
#include <thread>

namespace pyxfer {

/// Starts a thread of the engine. Signals from other processes are blocked in it, because the
/// program's handlers must not run on it, and a thread inherits its creator's mask. Debuggers and
/// profilers show `name`, of which the kernel keeps 15 characters.
[[nodiscard]] std::thread start_thread(char const* name, std::function<void()> run);

}  // namespace pyxfer
