#pragma once

#include <cstddef>
#include <cstdint>

namespace pyxfer {

/// Memory for a chase: a pointer every `stride` bytes. The device is -1 for host memory.
struct cycle_plan {
  std::uintptr_t address;
  std::size_t bytes;
  std::size_t stride;
  std::uint64_t seed;
  int device;
};

/// Writes pointers that lead through all places in a random order and back to the first one.
/// Returns the number of places. What is between the pointers is lost.
std::size_t make_cycle(cycle_plan const& plan);

}  // namespace pyxfer
