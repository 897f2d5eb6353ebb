#pragma once

#include <cstddef>

namespace pyxfer {

struct memory_amounts {
  std::size_t free_bytes;
  std::size_t total_bytes;
};

/// What this process may still take, within the machine's memory and its control group's limit.
[[nodiscard]] memory_amounts memory_of_machine();

}  // namespace pyxfer
