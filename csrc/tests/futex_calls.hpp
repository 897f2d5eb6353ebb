#pragma once

#include <functional>

namespace pyxfer::tests {

/// While it exists, `before_sleep` runs in a thread before it sleeps on a futex, and `after_wake`
/// in a thread after it has woken others. The engine's calls of the C library's `syscall` count;
/// locks and condition variables do not use it.
struct futex_calls {
  futex_calls(std::function<void()> sleeping, std::function<void()> waking);
  ~futex_calls();
  futex_calls(futex_calls const&) = delete;
  futex_calls& operator=(futex_calls const&) = delete;
  futex_calls(futex_calls&&) = delete;
  futex_calls& operator=(futex_calls&&) = delete;

  std::function<void()> before_sleep;
  std::function<void()> after_wake;
};

}  // namespace pyxfer::tests
