#pragma once

#include "blocks/list.hpp"
#include "cuda/kernel_module.hpp"
#include "cuda/stream.hpp"

#include <cuda.h>

#include <cstdint>

namespace pyxfer {

/// How many blocks of threads a kernel has at most, and how many threads each.
struct kernel_shape {
  unsigned int blocks;
  unsigned int threads;
};

/// The indices of one launch, in the kernel's order: source below, destination above.
using packed_pair = std::uint64_t;
[[nodiscard]] inline packed_pair pair_of(std::uint64_t from, std::uint64_t to) noexcept {
  return from | to << 32U;
}

/// The kernels of `block_kernel_text` in the primary context of one device. They access host memory
/// by its own address, which is that of page-locked memory on all devices since unified addressing.
/// Each call queues one kernel, with that context current.
class block_kernels : public kernel_module {
 public:
  /// Throws `kernels_unavailable_error` if the driver does not make them.
  explicit block_kernels(int device);

  static constexpr std::size_t word_bytes = 16;
  /// A block or stride of this many words, or a pool of this many blocks, does not fit into 32
  /// bits.
  static constexpr std::size_t most_words = std::size_t{1} << 28U;
  static constexpr std::size_t most_pool = std::size_t{1} << 32U;
  /// Of one launch.
  static constexpr std::size_t most_count = std::size_t{1} << 28U;

  /// Whether addresses, strides and blocks are multiples of a word.
  [[nodiscard]] static bool can_move(block_copy const& between) noexcept;

  /// What the launches of one copy have in common.
  struct order {
    block_copy const& between;
    std::uintptr_t wrong{};  ///< gets 1 if an index is outside its pool
    kernel_shape shape{};
    stream_view on{nullptr};
  };

  /// Up to `most_few_blocks`, which are read now.
  void move_few(order const& by, packed_pair const* pairs, std::size_t count) const;
  /// The pairs are at an address that the device reads.
  void move_many(order const& by, std::uintptr_t pairs, std::size_t count) const;
  /// Two arrays of 64-bit indices on the device.
  void move_given(order const& by, std::uintptr_t from, std::uintptr_t to, std::size_t count) const;

 private:
  template <typename... Extra>
  void launch(CUfunction function, order const& by, std::size_t count, Extra*... extra) const;

  CUfunction few_;
  CUfunction many_;
  CUfunction given_;
};

}  // namespace pyxfer
