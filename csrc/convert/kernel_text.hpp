#pragma once

#include "casts/item.hpp"

#include <cstdint>
#include <string>

namespace pyxfer {

/// How many loads each thread has under way before it stores.
inline constexpr unsigned loads_in_flight = 4;

/// How many neighbouring items a thread of `convert` takes at a time: 16 bytes of the larger
/// format.
[[nodiscard]] std::uint64_t items_in_group(item_kind from, item_kind to) noexcept;

/// PTX of the kernels that convert items of one format to another that `can_cast` allows, for
/// devices from 5.0 on; the driver compiles it. Threads that are neighbours load neighbours.
///
/// convert: the items keep their order. Both addresses are aligned to 16 bytes. Items that fill no
/// group, fewer than 16, are converted one by one.
/// reorder: each item from number `first` below `end` goes to another place. Axis 0 is the
/// innermost of `axes`. The number of an item is divided by the extent of each axis but the
/// outermost: the remainder is its index on this axis, which `stride` multiplies, and the quotient
/// goes on to the next axis. `outer` multiplies the last quotient. A division is a multiplication
/// by `inverse`, which is 2 to the power of 64 over the extent, rounded up: exact for extents above
/// 1 and numbers below 2 to the power of 32. Numbers of items and places have 32 bits.
[[nodiscard]] std::string convert_kernel_text(item_kind from, item_kind to);

}  // namespace pyxfer
