#pragma once

#include <cstddef>

namespace pyxfer {

struct memory_amounts {
  std::size_t free_bytes;
  std::size_t total_bytes;
};

/// The memory that this process can still allocate, limited by the machine and by its control
/// group.
[[nodiscard]] memory_amounts memory_of_machine();

}  // namespace pyxfer
