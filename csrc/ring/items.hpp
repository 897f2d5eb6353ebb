#pragma once

#include "ring/fill.hpp"

#include <cstddef>
#include <cstdint>

namespace pyxfer {

/// One side of a copy of items that lie `step` bytes apart.
struct item_row {
  std::uintptr_t address;
  std::ptrdiff_t step;

  [[nodiscard]] item_row from(std::size_t index) const noexcept {
    return {address + static_cast<std::uintptr_t>(step) * index, step};
  }
};

/// Copies `count` items of so many bytes each. Long ones are copied by `fill`.
void copy_items(item_row to, item_row from, std::size_t count, std::size_t bytes,
                fill_function fill);

/// One side of a copy of items in two dimensions, of which `near` is the one whose items lie
/// together in a cache line.
struct item_grid {
  std::uintptr_t address;
  std::ptrdiff_t near;
  std::ptrdiff_t far;
};

/// Copies a grid to where the other dimension is the near one, line by line on both sides, for
/// items of up to `most_turned_bytes`. `near` and `far` are the numbers of items of the source.
void copy_turned(item_grid to, item_grid from, std::size_t near, std::size_t far,
                 std::size_t bytes);

inline constexpr std::size_t most_turned_bytes = 16;

}  // namespace pyxfer
