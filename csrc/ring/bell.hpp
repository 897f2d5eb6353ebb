#pragma once

#include <atomic>
#include <cstdint>

namespace pyxfer {

/// Wakes sleeping threads with one system call. The threads of a condition variable would queue for
/// its mutex. (C++20 has it as std::atomic::wait.)
///
/// rings_ is written by `ring` and read by every thread. The kernel compares it before it lets a
/// thread sleep, so a ring between `rings` and `sleep` is not lost.
class bell {
 public:
  /// Read it before looking whether there is a reason to sleep.
  [[nodiscard]] std::uint32_t rings() const noexcept { return rings_; }
  /// Returns when the bell has rung since then, or spuriously.
  void sleep(std::uint32_t since) noexcept;
  /// Wakes at most that many sleeping threads.
  void ring(int most) noexcept;

 private:
  std::atomic<std::uint32_t> rings_{0};
};

}  // namespace pyxfer
