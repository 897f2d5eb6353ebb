#pragma once

#include "ring/fill.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyxfer {

/// Memory of the host as an array sees it: items in some dimensions, so many bytes apart. On the
/// device the same items lie without gaps, in C order; any range of those bytes can be copied by
/// itself, so that every thread can do every chunk.
class layout {
 public:
  /// Strides may be negative, or zero. Throws std::invalid_argument where the numbers make no
  /// array.
  layout(std::uintptr_t address, std::ptrdiff_t itemsize, std::vector<std::ptrdiff_t> const& shape,
         std::vector<std::ptrdiff_t> const& strides);

  /// Of the first item.
  [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
  /// Of all items.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Whether the items lie here as they do on the device.
  [[nodiscard]] bool is_contiguous() const noexcept { return rows_.empty(); }
  /// Whether no byte belongs to two items, as far as that can be told without comparing them all.
  [[nodiscard]] bool is_disjoint() const;

  /// Copies bytes [begin, end) of the items in C order into memory without gaps ...
  void read(std::size_t begin, std::size_t end, void* to, fill_function fill) const;
  /// ... and from there.
  void write(std::size_t begin, std::size_t end, void const* from, fill_function fill) const;

  /// As many as NumPy has.
  static constexpr std::size_t most_dimensions = 64;

 private:
  struct dimension {
    std::size_t extent;
    std::ptrdiff_t stride;
  };
  class walk;
  class linear_side;

  void add_outer(dimension const& next);
  [[nodiscard]] std::size_t copy_runs(walk& at, std::size_t wanted, std::size_t offset,
                                      linear_side const& other) const;
  void copy(std::size_t begin, std::size_t end, linear_side const& other) const;

  std::uintptr_t address_;
  std::size_t bytes_;
  std::size_t run_bytes_{};  ///< that lie together
  /// Of runs, the outermost first; those that lie together are one.
  std::vector<dimension> rows_;
};

/// Throws std::invalid_argument where writing to it would write a byte twice: the order would
/// decide.
void validate_destination(layout const& made);

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
