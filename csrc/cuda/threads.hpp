#pragma once

#include <functional>
#include <thread>

namespace pyxfer {

/// Starts a thread of the engine. Signals from outside are blocked in it, because a thread
/// inherits its creator's mask and the program's handlers must not run here. Debuggers and
/// profilers show `name`, of which the kernel keeps 15 characters.
[[nodiscard]] std::thread start_thread(char const* name, std::function<void()> run);

}  // namespace pyxfer
