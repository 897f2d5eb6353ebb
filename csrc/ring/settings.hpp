#pragma once

#include "ring/fill.hpp"

#include <algorithm>
#include <cstddef>

namespace pyxfer {

/// How a ring is built. The best settings depend on the host and on the size, and are found by
/// measuring.
struct ring_settings {
  int threads{};              ///< number of threads, including the caller's
  std::size_t chunk_bytes{};  ///< size of a slot, which a thread fills at a time
  int slots{};                ///< number of slots, which all threads share
  fill_kind fill{fill_kind::plain};
  int spin_us{};               ///< how long an idle thread polls for work before it sleeps
  std::size_t direct_bytes{};  ///< smaller uploads are left to the driver; 0: no uploads are

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

/// Throws std::invalid_argument if a setting is out of its range.
void validate(ring_settings const& made);

/// The bytes [begin, end) of a transfer.
struct chunk {
  std::size_t index;
  std::size_t begin;
  std::size_t end;

  [[nodiscard]] std::size_t bytes() const noexcept { return end - begin; }
};

/// How a transfer is cut into chunks, each of which fits a slot. They are small, so that the first
/// copy begins early and all threads end together. The slot order decides how many are copied at a
/// time.
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
  /// Number of threads, including the caller's. The caller moves a few chunks before other threads
  /// are awake, so for a few chunks it wakes none.
  [[nodiscard]] int threads() const noexcept {
    if (chunks() <= most_chunks_alone) { return 1; }
    return static_cast<int>(std::min(chunks(), static_cast<std::size_t>(most_threads_)));
  }
  static constexpr std::size_t most_chunks_alone = 4;
  /// Whether the caller moves more than one chunk without other threads. The driver's own staging
  /// is faster then.
  [[nodiscard]] bool is_soon_done() const noexcept {
    return chunks() > 1 && chunks() <= most_chunks_alone;
  }
  /// Whether an upload is left to the driver, for that reason or because it is small.
  [[nodiscard]] bool is_left_to_driver() const noexcept {
    return direct_bytes_ != 0 && (bytes_ < direct_bytes_ || is_soon_done());
  }
  /// Whether the caller only polls and issues copies, and the other threads fill. A thread that
  /// fills takes four times as long to issue a copy (13 us instead of 3 us, on a Sapphire Rapids),
  /// because its stores have to reach memory first. With few threads, losing one of them costs
  /// more.
  [[nodiscard]] bool is_attended() const noexcept {
    return threads() > 1 && most_threads_ >= enough_to_attend;
  }
  static constexpr int enough_to_attend = 8;
  /// How many adjacent chunks a thread takes at a time in an upload beside the caller's work. Few
  /// threads read faster from larger ranges: four read 20 GB/s in ranges of 256 KiB, and 34 to 47
  /// in ranges of 1 MiB (H200). Each thread takes chunks twice at least.
  [[nodiscard]] std::size_t chunks_beside() const noexcept {
    auto const most = std::max<std::size_t>(1, bytes_beside / chunk_bytes_);
    return std::clamp<std::size_t>(chunks() / (2 * static_cast<std::size_t>(threads())), 1, most);
  }
  static constexpr std::size_t bytes_beside = std::size_t{512} << 10U;
  [[nodiscard]] chunk at(std::size_t index) const noexcept { return from(index, 1); }
  /// The bytes of `count` adjacent chunks.
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

/// Statistics of one transfer through a ring. `waited_s` and `filled_s` are sums over its threads.
struct staged {
  double wall_s;  ///< from when it reached the front of the queue to its end
  std::size_t chunks;
  std::size_t copies;  ///< copies by the engine, each of one or more chunks
  int threads;         ///< number of threads that moved a chunk
  double waited_s;     ///< waiting until the device has left or filled a slot
  double filled_s;     ///< copying between slots and the array
};

}  // namespace pyxfer
