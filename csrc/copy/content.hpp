#pragma once

#include "copy/lane.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace pyxfer {

/// Writes pseudo-random bytes that depend only on the seed and on the offset, which is counted from
/// `first`, a multiple of 8.
void fill(std::uintptr_t address, std::size_t bytes, std::uint64_t seed, std::size_t first = 0);

/// Offset in these bytes of the first one that differs from what `fill` writes there.
[[nodiscard]] std::optional<std::size_t> first_unlike(std::uintptr_t address, std::size_t bytes,
                                                      std::uint64_t seed, std::size_t first = 0);

/// The same for the memory of a device, through page-locked memory.
void fill_device(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed);
[[nodiscard]] std::optional<std::size_t> first_unlike_on_device(int device, std::uintptr_t address,
                                                                std::size_t bytes,
                                                                std::uint64_t seed);

/// Host memory through which the device's side of a slot is written and read, in pieces: at least
/// `check_parts` pages. It is quicker if it is page-locked.
struct scratch_memory {
  std::uintptr_t address;
  std::size_t bytes;
};

/// Each part of a slot has a thread and its own part of the scratch memory.
constexpr std::size_t check_parts = 8;

/// A slot whose copy is to be checked. No copy of the lane touches the scratch memory.
struct content_check {
  lane along;
  std::size_t slot;
  std::uint64_t seed;
  scratch_memory scratch;
  bool slow_reads;  ///< the host side is write-combined: the device reads it, not the processor
};

/// Writes random data to the slot's source and poison to its destination.
void prepare(int device, content_check const& what);

/// After the copy: offset of the first byte that did not arrive, or nothing.
[[nodiscard]] std::optional<std::size_t> first_wrong(int device, content_check const& what);

}  // namespace pyxfer
