#pragma once

#include "ring/settings.hpp"

#include <cstddef>

namespace pyxfer {

/// Bytes of a transfer, from `begin` up to `end`.
struct chunk {
  std::size_t begin;
  std::size_t end;

  [[nodiscard]] std::size_t bytes() const noexcept { return end - begin; }
};

/// How a transfer is cut. The first chunks are small, so that the first copy leaves early, and the
/// last ones too, so that all threads end together; each time that every thread has had one, they
/// double, up to the ring's chunk. Every chunk but the last ends on a page.
class chunk_plan {
 public:
  chunk_plan(std::size_t bytes, ring_settings const& by);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t chunks() const noexcept { return 2 * ramp_chunks_ + body_chunks_; }
  /// How many threads it is worth to wake, the caller's included.
  [[nodiscard]] int threads() const noexcept { return static_cast<int>(threads_); }
  [[nodiscard]] chunk at(std::size_t index) const noexcept { return {cut(index), cut(index + 1)}; }

  /// The first chunk's size where there is much to move.
  [[nodiscard]] static std::size_t smallest(std::size_t chunk_bytes) noexcept;

 private:
  [[nodiscard]] std::size_t ramp(std::size_t chunks) const noexcept;
  [[nodiscard]] std::size_t cut(std::size_t index) const noexcept;

  std::size_t bytes_;
  std::size_t smallest_;
  std::size_t threads_;
  std::size_t ramp_chunks_{};  ///< that grow; as many shrink at the end
  std::size_t body_chunks_{};
  std::size_t body_begin_{};
  std::size_t body_step_{};
};

}  // namespace pyxfer
