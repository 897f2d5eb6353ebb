#pragma once

#include "blocks/mover.hpp"
#include "cuda/memory.hpp"
#include "engine_support.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace pyxfer::tests {

using index_list = std::vector<std::int64_t>;

inline block_list list_of(index_list const& from, index_list const& to) {
  return {from.data(), to.data(), from.size()};
}

/// `count` different numbers below `limit`, in any order.
inline index_list random_indices(std::size_t limit, std::size_t count, unsigned int seed) {
  index_list made(limit);
  std::iota(made.begin(), made.end(), 0);
  std::shuffle(made.begin(), made.end(), std::mt19937{seed});
  made.resize(count);
  return made;
}

/// A pool in its own memory, with a guard in front of the first block, behind the last one and in
/// the gaps between blocks. Every block has other contents.
class pool_of_blocks {
 public:
  pool_of_blocks(bool on_device, std::size_t blocks, std::size_t block_bytes, std::size_t gap,
                 unsigned char seed)
      : on_device_{on_device}, blocks_{blocks}, block_bytes_{block_bytes}, gap_{gap} {
    auto const total = 2 * guard + blocks * (block_bytes + gap);
    if (on_device) {
      device_.emplace(total, 0);
    } else {
      host_.emplace(total, memory_kind::pinned, 0);
    }
    fill(seed);
  }

  void fill(unsigned char seed) {
    auto* const at = bytes();
    for (std::size_t i = 0; i < size(); ++i) {
      at[i] = static_cast<unsigned char>((i * 131 + i / 251 + seed) & 0xff);
    }
  }
  [[nodiscard]] block_pool view() const { return {address() + guard, blocks_, stride()}; }
  [[nodiscard]] std::size_t stride() const { return block_bytes_ + gap_; }
  [[nodiscard]] std::size_t size() const { return 2 * guard + blocks_ * stride(); }
  [[nodiscard]] unsigned char* bytes() const {
    return on_device_ ? inside(address()) : reinterpret_cast<unsigned char*>(address());
  }
  [[nodiscard]] std::vector<unsigned char> memory() const { return {bytes(), bytes() + size()}; }
  /// All of its memory as it is after a copy.
  [[nodiscard]] std::vector<unsigned char> after(pool_of_blocks const& source,
                                                 block_list const& list) const {
    auto expected = memory();
    for (std::size_t i = 0; i < list.count; ++i) {
      std::memcpy(expected.data() + guard + static_cast<std::size_t>(list.to[i]) * stride(),
                  source.bytes() + guard + static_cast<std::size_t>(list.from[i]) * source.stride(),
                  block_bytes_);
    }
    return expected;
  }

 private:
  static constexpr std::size_t guard = 256;

  [[nodiscard]] std::uintptr_t address() const {
    return on_device_ ? device_->address() : host_->address();
  }

  bool on_device_;
  std::size_t blocks_;
  std::size_t block_bytes_;
  std::size_t gap_;
  std::optional<device_buffer> device_;
  std::optional<host_buffer> host_;
};

}  // namespace pyxfer::tests
