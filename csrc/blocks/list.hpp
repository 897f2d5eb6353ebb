#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pyxfer {

/// Memory of equal blocks. Block i begins at `address + i * stride`.
struct block_pool {
  std::uintptr_t address;
  std::size_t blocks;
  std::size_t stride;

  [[nodiscard]] std::uintptr_t at(std::size_t block) const noexcept {
    return address + block * stride;
  }
  /// The address behind its last block.
  [[nodiscard]] std::uintptr_t end(std::size_t block_bytes) const noexcept {
    return blocks == 0 ? address : at(blocks - 1) + block_bytes;
  }
};

/// Which blocks are copied: block `from[k]` of a pool to block `to[k]` of another.
struct block_list {
  std::int64_t const* from;
  std::int64_t const* to;
  std::size_t count;

  [[nodiscard]] block_list part(std::size_t first, std::size_t most) const noexcept {
    auto const left = count - first;
    return {from + first, to + first, left < most ? left : most};
  }
};

/// Two pools, and how many bytes of each block are copied.
struct block_copy {
  block_pool source;
  block_pool destination;
  std::size_t block_bytes;
};

/// Throws std::invalid_argument, with a sentence about the first wrong value, if a block of either
/// pool does not exist, or if a block of the destination is written twice: which of the two stayed
/// would be open.
void validate(block_copy const& between, block_list const& list);

/// Throws std::invalid_argument if the blocks of a pool overlap each other, a pool has no address
/// or the two pools overlap.
void validate(block_copy const& between);

/// Neighbours on both sides, which one copy takes.
struct block_run {
  std::size_t from;
  std::size_t to;
  std::size_t blocks;
};

/// The runs of a list. Blocks with gaps between them are runs of one.
[[nodiscard]] std::vector<block_run> runs_of(block_copy const& between, block_list const& list);

/// Equal distances, in blocks, on both sides.
struct block_steps {
  std::size_t from;
  std::size_t to;
};

/// Nothing if the indices do not go up by equal steps on both sides. The step of one block is 1.
[[nodiscard]] std::optional<block_steps> steps_of(block_list const& list);

}  // namespace pyxfer
