#pragma once

#include "casts/item.hpp"

#include <cstddef>
#include <vector>

namespace pyxfer {

/// Converts items at any alignment; the memory must not overlap. Other threads and devices see the
/// result when it returns.
using cast_function = void (*)(void* to, void const* from, std::size_t items);

/// Whether a value of one format has one meaning in the other. Not from a floating-point number to
/// an integer: C, NumPy and each device differ in what becomes of values out of range.
[[nodiscard]] bool can_cast(item_kind from, item_kind to) noexcept;

/// The conversion that every processor can do. Rounds to nearest even as NumPy does; integers that
/// are too large for the target lose their upper bits; infinities and NaN stay what they are.
/// A value becomes bfloat16 by way of float32, as in ml_dtypes and PyTorch, and a 32-bit or 64-bit
/// integer becomes float16 likewise. Anything but zero becomes true.
/// Throws std::invalid_argument for formats that `can_cast` refuses.
[[nodiscard]] cast_function plain_cast(item_kind from, item_kind to);

/// Whether whole cache lines of the target pass the caches, for a device that reads them, or stay
/// in them, for what this core reads next.
enum class cast_stores : unsigned char { streaming, cached };

struct cast_kernel {
  char const* name;
  cast_function cast;
};

/// The conversions that this processor can do, with the same results apart from the bits of a NaN:
/// the plain one, then those that store whole cache lines. The widest is last.
[[nodiscard]] std::vector<cast_kernel> cast_kernels(item_kind from, item_kind to,
                                                    cast_stores stores = cast_stores::streaming);

/// The last of them.
[[nodiscard]] cast_function cast_of(item_kind from, item_kind to,
                                    cast_stores stores = cast_stores::streaming);

}  // namespace pyxfer
