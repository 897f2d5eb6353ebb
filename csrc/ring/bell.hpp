#pragma once

#include <atomic>
#include <cstdint>

namespace pyxfer {

/// Wakes threads that sleep, all of them by one call of the system and none behind another: those
/// of a condition variable would queue for its lock. (C++20 has it as std::atomic::wait.)
class bell {
 public:
  /// To be read before looking whether there is a reason to sleep.
  [[nodiscard]] std::uint32_t rings() const noexcept { return rings_; }
  /// Returns when it has been rung since then, or for no reason.
  void sleep(std::uint32_t since) noexcept;
  /// Wakes as many that sleep, at most.
  void ring(int most) noexcept;

 private:
  std::atomic<std::uint32_t> rings_{0};
};

}  // namespace pyxfer
