#include "ring/plan.hpp"

#include <algorithm>

namespace pyxfer {
namespace {

/// A copy engine is slower from an odd address, and the host's pages end there.
constexpr std::size_t page = 4096;

/// Below this a copy costs more to issue than to make.
constexpr std::size_t least_first = std::size_t{128} << 10U;
constexpr std::size_t first_part = 16;

constexpr std::size_t pages_down(std::size_t bytes) { return bytes / page * page; }
constexpr std::size_t pages_up(std::size_t bytes) { return pages_down(bytes + page - 1); }
constexpr std::size_t parts(std::size_t bytes, std::size_t of) { return (bytes + of - 1) / of; }

}  // namespace

std::size_t chunk_plan::smallest(std::size_t chunk_bytes) noexcept {
  return std::min(chunk_bytes, std::max(least_first, chunk_bytes / first_part));
}

chunk_plan::chunk_plan(std::size_t bytes, ring_settings const& by)
    : bytes_{bytes},
      smallest_{smallest(by.chunk_bytes)},
      threads_{std::clamp<std::size_t>(parts(bytes, smallest_), 1,
                                       static_cast<std::size_t>(by.threads))} {
  auto largest = smallest_;
  while (largest < by.chunk_bytes && 2 * ramp(ramp_chunks_ + threads_) <= bytes_) {
    ramp_chunks_ += threads_;
    largest *= 2;
  }
  body_begin_ = ramp(ramp_chunks_);
  auto const body_end = ramp_chunks_ == 0 ? bytes_ : pages_down(bytes_ - body_begin_);
  auto const body = body_end - body_begin_;
  body_chunks_ = parts(body, largest);
  if (body_chunks_ != 0) { body_step_ = pages_up(parts(body, body_chunks_)); }
}

/// Bytes of the first chunks where all still grow.
std::size_t chunk_plan::ramp(std::size_t chunks) const noexcept {
  auto const doublings = chunks / threads_;
  auto const size = smallest_ << doublings;
  return threads_ * (size - smallest_) + chunks % threads_ * size;
}

/// Where a chunk begins; the one after the last would at the end.
std::size_t chunk_plan::cut(std::size_t index) const noexcept {
  if (index >= chunks()) { return bytes_; }
  if (index <= ramp_chunks_) { return ramp(index); }
  auto const body_end = ramp_chunks_ + body_chunks_;
  if (index >= body_end) { return pages_down(bytes_ - ramp(chunks() - index)); }
  return body_begin_ + (index - ramp_chunks_) * body_step_;
}

}  // namespace pyxfer
