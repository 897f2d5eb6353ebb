#pragma once

#include <atomic>
#include <cstdint>

namespace pyxfer::hostrt {

/// A value for a handle that no other stream or event ever has, so that a stale one is recognised.
/// It is never dereferenced, and lies above the handles of the default streams.
inline std::uintptr_t next_handle() noexcept {
  static std::atomic<std::uintptr_t> last{0x1000};
  return last += 0x10;
}

}  // namespace pyxfer::hostrt
