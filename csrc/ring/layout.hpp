#pragma once

#include "ring/fill.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyxfer {

/// The memory of a strided array on the host. On the device the same items are contiguous, in C
/// order. Any range of those bytes can be copied separately, so any thread can copy any chunk.
///
/// It may also be that of several contiguous arrays, which are in one block on the device.
class layout {
 public:
  /// A contiguous array, and its place in the block.
  struct part {
    std::uintptr_t address;
    std::size_t bytes;
    std::size_t offset;

    [[nodiscard]] std::size_t end() const noexcept { return offset + bytes; }
  };

  /// Strides are in bytes and may be negative or zero. Throws std::invalid_argument if the numbers
  /// do not describe an array.
  layout(std::uintptr_t address, std::ptrdiff_t itemsize, std::vector<std::ptrdiff_t> const& shape,
         std::vector<std::ptrdiff_t> const& strides);

  /// Offsets increase, and parts do not overlap. Bytes between them become zero on the device.
  /// Throws std::invalid_argument for other parts.
  explicit layout(std::vector<part> parts);

  /// Address of the first item.
  [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
  /// Bytes of all items.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Whether the items are contiguous and in C order here too.
  [[nodiscard]] bool is_contiguous() const noexcept { return rows_.empty() && parts_.empty(); }
  /// Whether no byte belongs to two items. It may return false for strides that interleave without
  /// overlapping.
  [[nodiscard]] bool is_disjoint() const;

  /// Copies bytes [begin, end) of the items, in C order, to contiguous memory.
  void read(std::size_t begin, std::size_t end, void* to, fill_function fill) const;
  /// Copies contiguous memory to bytes [begin, end) of the items, in C order.
  void write(std::size_t begin, std::size_t end, void const* from, fill_function fill) const;

  /// The limit of NumPy.
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
  void copy_parts(std::size_t begin, std::size_t end, linear_side const& other) const;

  std::uintptr_t address_;
  std::size_t bytes_;
  std::size_t run_bytes_{};  ///< bytes of a run, which is contiguous
  /// The dimensions of the runs, the outermost first; mergeable ones are merged.
  std::vector<dimension> rows_;
  std::vector<part> parts_;  ///< empty for one array
};

/// Throws std::invalid_argument if a byte would be written twice, because the result would depend
/// on the order.
void validate_destination(layout const& made);

/// One side of a copy of items that are `step` bytes apart.
struct item_row {
  std::uintptr_t address;
  std::ptrdiff_t step;

  [[nodiscard]] item_row from(std::size_t index) const noexcept {
    return {address + static_cast<std::uintptr_t>(step) * index, step};
  }
};

/// Copies `count` items of `bytes` bytes. Long items are copied with `fill`.
void copy_items(item_row to, item_row from, std::size_t count, std::size_t bytes,
                fill_function fill);

/// One side of a copy of items in two dimensions. `near` is the stride of the dimension whose items
/// share cache lines.
struct item_grid {
  std::uintptr_t address;
  std::ptrdiff_t near;
  std::ptrdiff_t far;
};

/// Transposes a grid: the near dimension of the source is the far one of the target. It reads and
/// writes whole cache lines on both sides. Items have up to `most_transposed_bytes` bytes. `near`
/// and `far` are the numbers of items in the dimensions of the source.
void copy_transposed(item_grid to, item_grid from, std::size_t near, std::size_t far,
                     std::size_t bytes);

inline constexpr std::size_t most_transposed_bytes = 16;

}  // namespace pyxfer
