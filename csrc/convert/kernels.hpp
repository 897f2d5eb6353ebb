#pragma once

#include "casts/item.hpp"
#include "cuda/kernel_module.hpp"
#include "cuda/stream.hpp"

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace pyxfer {

/// Where the items of an array in C order go: the extent of each axis, and the distance of its
/// neighbours in the destination, in items. No axes: they keep their order.
struct item_order {
  static constexpr std::size_t most_axes = 6;
  std::size_t axes{};
  std::array<std::uint64_t, most_axes> extents{};
  std::array<std::uint64_t, most_axes> strides{};
};

/// The same order in as few axes as possible: without those of one item, and neighbours whose items
/// stay together are one axis. No axes if the items keep their order.
[[nodiscard]] item_order simplified(item_order const& order) noexcept;

/// Kernels that convert items on a device as `plain_cast` does on the host (or, between equal
/// formats, move them), in the primary context of one device. Each call queues one kernel, with
/// that context current.
class convert_kernels : public kernel_module {
 public:
  /// Throws `kernels_unavailable_error` if the driver does not make them, and std::invalid_argument
  /// for formats that `can_cast` refuses.
  convert_kernels(int device, item_kind from, item_kind to);

  /// Arrays with more items cannot be put into another order.
  static constexpr std::uint64_t most_ordered = std::uint64_t{1} << 32U;
  /// What addresses and the number of the first item are multiples of.
  static constexpr std::uint64_t alignment = 16;

  /// Converts `count` items from number `first` on. Both addresses are those of item 0. Throws
  /// std::invalid_argument if these or `first` are not aligned, or the order has fewer items or
  /// more than `most_ordered`.
  void convert(std::uintptr_t source, std::uintptr_t destination, item_order const& order,
               std::uint64_t first, std::uint64_t count, stream_view on) const;

 private:
  void in_order(std::uintptr_t source, std::uintptr_t destination, std::uint64_t count,
                stream_view on) const;
  void reorder(std::uintptr_t source, std::uintptr_t destination, item_order const& order,
               std::uint64_t first, std::uint64_t count, stream_view on) const;

  item_kind from_;
  item_kind to_;
  CUfunction in_order_;
  CUfunction reordered_;
};

}  // namespace pyxfer
