#pragma once

namespace pyxfer::tests {

/// How long a test and its fixture may take, and a child process: an alarm kills those that hang. A
/// forked child is also killed when its parent ends. PYXFER_TEST_LIMIT_S shortens the limit for
/// runs that expect hangs.
[[nodiscard]] unsigned int limit_s();

}  // namespace pyxfer::tests
