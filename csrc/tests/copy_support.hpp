#pragma once

#include "copy/lane.hpp"
#include "cuda/memory.hpp"
#include "hostrt/memory.hpp"

#include <cstddef>
#include <cstring>
#include <random>

namespace pyxfer::tests {

inline constexpr std::size_t kib = 1024;
inline constexpr std::size_t mib = 1024 * kib;

/// The memory of one lane. Its sources are random, and every byte of a destination differs from the
/// byte that will arrive there.
class lane_memory {
 public:
  lane_memory(direction way, std::size_t bytes, memory_kind kind = memory_kind::pinned,
              std::size_t slots = 1)
      : host_{bytes * slots, kind, 0},
        device_{bytes * slots, 0},
        along_{way, host_.address(), device_.address(), bytes, bytes, slots} {
    std::minstd_rand random{static_cast<unsigned>(bytes + slots)};
    for (std::size_t turn = 0; turn < slots; ++turn) {
      auto* const from = inside(along_.source(turn));
      auto* const to = inside(along_.destination(turn));
      for (std::size_t i = 0; i < bytes; ++i) {
        from[i] = static_cast<unsigned char>(random() >> 8U);
        to[i] = static_cast<unsigned char>(~from[i]);
      }
    }
  }

  [[nodiscard]] lane const& along() const { return along_; }

  [[nodiscard]] bool has_arrived(std::size_t turn) const {
    return std::memcmp(inside(along_.source(turn)), inside(along_.destination(turn)),
                       along_.bytes) == 0;
  }
  [[nodiscard]] bool is_untouched(std::size_t turn) const {
    auto const* const from = inside(along_.source(turn));
    auto const* const to = inside(along_.destination(turn));
    for (std::size_t i = 0; i < along_.bytes; ++i) {
      if (to[i] != static_cast<unsigned char>(~from[i])) { return false; }
    }
    return true;
  }

  /// Where a test reads and writes memory of either side.
  static unsigned char* inside(void const* address) {
    return reinterpret_cast<unsigned char*>(hostrt::host_view(address));
  }

 private:
  host_buffer host_;
  device_buffer device_;
  lane along_;
};

}  // namespace pyxfer::tests
