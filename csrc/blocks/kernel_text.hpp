#pragma once

#include <cstddef>
#include <string>

namespace pyxfer {

/// Indices that a launch brings with it, so that they need no memory and a CUDA graph keeps them.
/// Parameters of a kernel have 4 KiB at most.
inline constexpr std::size_t most_few_blocks = 256;

/// PTX of the kernels that copy blocks between two pools, for devices from 5.0 on; the driver
/// compiles it. All of them are one loop over the words of 16 bytes of all blocks. Threads that are
/// neighbours copy words that are neighbours, and each has `words_in_flight` loads under way before
/// it stores. No thread divides in the loop: its block and its word within that go up by the same
/// amounts each time.
///
/// An index outside its pool is skipped, and 1 is written to `wrong`.
///
/// move_few: indices, 32 bits each, source before destination, in the parameter `pairs`.
/// move_many: the same at the address `pairs`.
/// move_given: two arrays of 64-bit indices at the addresses `from` and `to`.
[[nodiscard]] std::string const& block_kernel_text();

}  // namespace pyxfer
