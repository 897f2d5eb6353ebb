#pragma once

#include "ring/fill.hpp"

#include <cstddef>

namespace pyxfer {

/// How a ring is built. No setting is the best for every host and size: they are found by
/// measuring.
struct ring_settings {
  int threads{};              ///< that fill slots, the caller's among them
  std::size_t chunk_bytes{};  ///< of a slot: what a thread fills at a time
  int slots{};                ///< that all threads share
  fill_kind fill{fill_kind::plain};
  int spin_us{};               ///< how long an idle thread looks for work before it sleeps
  std::size_t direct_bytes{};  ///< smaller uploads are left to the driver; 0 for none, ever

  [[nodiscard]] std::size_t pinned_bytes() const noexcept {
    return static_cast<std::size_t>(slots) * chunk_bytes;
  }
};

inline constexpr int most_ring_threads = 64;
inline constexpr int least_ring_slots = 2;
inline constexpr int most_ring_slots = 4096;
inline constexpr std::size_t least_chunk_bytes = std::size_t{4} << 10U;
inline constexpr std::size_t most_chunk_bytes = std::size_t{64} << 20U;
inline constexpr int most_spin_us = 1'000'000;

/// Throws std::invalid_argument where no ring can be built like that.
void validate(ring_settings const& made);

}  // namespace pyxfer
