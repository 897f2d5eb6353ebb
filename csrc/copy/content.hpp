#pragma once

#include "copy/lane.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace pyxfer {

/// Pseudo-random bytes that depend on the seed and the place alone.
void fill(std::uintptr_t address, std::size_t bytes, std::uint64_t seed);

/// Offset of the first byte that is not what `fill` writes there.
[[nodiscard]] std::optional<std::size_t> first_unlike(std::uintptr_t address, std::size_t bytes,
                                                      std::uint64_t seed);

/// A slot whose copy is to be checked. `scratch` is host memory of the lane's bytes that no copy of
/// the lane touches.
struct content_check {
  lane along;
  std::size_t slot;
  std::uint64_t seed;
  std::uintptr_t scratch;
  bool slow_reads;  ///< the host side is write-combined: it is read back through the device, not by
                    ///< the processor
};

/// Fresh random data into the slot's source, poison into its destination.
void prepare(int device, content_check const& what);

/// After the copy: offset of the first byte that did not arrive, or nothing.
[[nodiscard]] std::optional<std::size_t> first_wrong(int device, content_check const& what);

}  // namespace pyxfer
