#pragma once

#include "ring/fill.hpp"

#include <algorithm>
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

/// Bytes of a transfer, from `begin` up to `end`.
struct chunk {
  std::size_t index;
  std::size_t begin;
  std::size_t end;

  [[nodiscard]] std::size_t bytes() const noexcept { return end - begin; }
};

/// How a transfer is cut into what a slot holds. The chunks are small, so that the first copy
/// leaves early and all threads end together; what is copied at a time is for the belt to say.
class chunk_plan {
 public:
  chunk_plan(std::size_t bytes, ring_settings const& by) : chunk_plan{bytes, by, by.threads} {}
  chunk_plan(std::size_t bytes, ring_settings const& by, int most_threads)
      : bytes_{bytes},
        chunk_bytes_{by.chunk_bytes},
        direct_bytes_{by.direct_bytes},
        most_threads_{most_threads} {}

  [[nodiscard]] std::size_t chunks() const noexcept {
    return bytes_ / chunk_bytes_ + (bytes_ % chunk_bytes_ != 0 ? 1 : 0);
  }
  /// How many threads it is worth to wake, the caller's included: he has done a few chunks before
  /// anybody is awake.
  [[nodiscard]] int threads() const noexcept {
    if (chunks() <= alone) { return 1; }
    return static_cast<int>(std::min(chunks(), static_cast<std::size_t>(most_threads_)));
  }
  static constexpr std::size_t alone = 4;
  /// Whether an upload of more than one chunk is done before threads awake: the driver, which
  /// stages it by itself, is faster then than the caller is alone.
  [[nodiscard]] bool is_soon_done() const noexcept { return chunks() > 1 && chunks() <= alone; }
  /// Whether an upload is, because of that or because it is little.
  [[nodiscard]] bool is_left_to_driver() const noexcept {
    return direct_bytes_ != 0 && (bytes_ < direct_bytes_ || is_soon_done());
  }
  /// Whether the caller looks after the copies and the others fill. A thread that fills takes four
  /// times as long to issue a copy (13 us and not 3, on a Sapphire Rapids), because what it has
  /// stored has to be in memory first; with few threads the loss of one would cost more.
  [[nodiscard]] bool is_attended() const noexcept {
    return threads() > 1 && most_threads_ >= enough_to_attend;
  }
  static constexpr int enough_to_attend = 8;
  [[nodiscard]] chunk at(std::size_t index) const noexcept { return from(index, 1); }
  /// So many together.
  [[nodiscard]] chunk from(std::size_t index, std::size_t count) const noexcept {
    auto const begin = index * chunk_bytes_;
    return {index, begin, std::min(bytes_ - begin, count * chunk_bytes_) + begin};
  }

 private:
  std::size_t bytes_;
  std::size_t chunk_bytes_;
  std::size_t direct_bytes_;
  int most_threads_;
};

/// What one transfer through a ring took. The last two are sums over its threads.
struct staged {
  double wall_s;  ///< from the start of its turn to its end
  std::size_t chunks;
  std::size_t copies;  ///< of the engine, each of one chunk or of several
  int threads;         ///< that had a chunk
  double waited_s;     ///< for the device, to use a slot again or to see it full
  double filled_s;     ///< copying between slots and the array
};

}  // namespace pyxfer
