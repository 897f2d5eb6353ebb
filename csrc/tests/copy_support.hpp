#pragma once

#include "copy/lane.hpp"
#include "cuda/memory.hpp"

#include <cstddef>
#include <cstring>
#include <random>

namespace pyxfer::tests {

inline constexpr std::size_t kib = 1024;
inline constexpr std::size_t mib = 1024 * kib;

/// The memory of one lane. Its sources are random, and every byte of a destination differs from the
/// byte that will arrive there. The device's side is read directly, as the host runtime allows.
class lane_memory {
 public:
  lane_memory(direction way, std::size_t bytes, memory_kind kind = memory_kind::pinned,
              std::size_t slots = 1)
      : host_{bytes * slots, kind, 0},
        device_{bytes * slots, 0},
        along_{way, host_.address(), device_.address(), bytes, bytes, slots} {
    std::minstd_rand random{static_cast<unsigned>(bytes + slots)};
    for (std::size_t turn = 0; turn < slots; ++turn) {
      auto* const from = static_cast<unsigned char*>(along_.source(turn));
      auto* const to = static_cast<unsigned char*>(along_.destination(turn));
      for (std::size_t i = 0; i < bytes; ++i) {
        from[i] = static_cast<unsigned char>(random() >> 8U);
        to[i] = static_cast<unsigned char>(~from[i]);
      }
    }
  }

  [[nodiscard]] lane const& along() const { return along_; }

  [[nodiscard]] bool has_arrived(std::size_t turn) const {
    return std::memcmp(along_.source(turn), along_.destination(turn), along_.bytes) == 0;
  }
  [[nodiscard]] bool is_untouched(std::size_t turn) const {
    auto const* const from = static_cast<unsigned char const*>(along_.source(turn));
    auto const* const to = static_cast<unsigned char const*>(along_.destination(turn));
    for (std::size_t i = 0; i < along_.bytes; ++i) {
      if (to[i] != static_cast<unsigned char>(~from[i])) { return false; }
    }
    return true;
  }

 private:
  host_buffer host_;
  device_buffer device_;
  lane along_;
};

}  // namespace pyxfer::tests
