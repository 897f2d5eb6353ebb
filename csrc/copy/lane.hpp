#pragma once

#include "cuda/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace pyxfer {

enum class direction { h2d, d2h };

[[nodiscard]] direction direction_of(std::string const& word);

/// The memory of the transfers of one direction: `slots` places that are `stride` bytes apart on
/// both sides. They are used in turn, so that no transfer finds the previous one's bytes in a
/// cache.
struct lane {
  direction way;
  std::uintptr_t host;
  std::uintptr_t device;
  std::size_t bytes;
  std::size_t stride;
  std::size_t slots;

  [[nodiscard]] void* host_at(std::size_t turn) const { return at(host, turn); }
  [[nodiscard]] void* device_at(std::size_t turn) const { return at(device, turn); }
  [[nodiscard]] void* source(std::size_t turn) const {
    return way == direction::h2d ? host_at(turn) : device_at(turn);
  }
  [[nodiscard]] void* destination(std::size_t turn) const {
    return way == direction::h2d ? device_at(turn) : host_at(turn);
  }
  /// The first `most` bytes of each place; 0: all of them.
  [[nodiscard]] lane shortened(std::size_t most) const {
    auto made = *this;
    if (most > 0 && most < bytes) { made.bytes = most; }
    return made;
  }

 private:
  [[nodiscard]] void* at(std::uintptr_t base, std::size_t turn) const {
    return reinterpret_cast<void*>(base + turn % slots * stride);
  }
};

/// Throws std::invalid_argument for a null address, for zero bytes or slots, and for slots that
/// overlap.
void validate(lane const& made);

/// The direction for the runtime.
[[nodiscard]] inline cudaMemcpyKind kind_of(lane const& along) {
  return along.way == direction::h2d ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
}

/// One cudaMemcpy. From pageable memory it may return before the last byte has arrived.
void copy_blocking(lane const& along, std::size_t turn);

void copy_async(lane const& along, std::size_t turn, stream_view on);

}  // namespace pyxfer
