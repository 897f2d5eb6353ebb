#include "blocks/kernels.hpp"

#include "blocks/kernel_text.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "cuda/memory.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace pyxfer {
namespace {

constexpr std::uint64_t line_bytes = 128;
constexpr std::uint32_t words_in_line = line_bytes / block_kernels::word_bytes;
/// Shorter blocks have as many requests anyway.
constexpr std::uint32_t fewest_words = 32;

bool is_whole(std::uint64_t value) noexcept { return value % block_kernels::word_bytes == 0; }

bool has_whole_lines(block_pool const& pool, std::size_t block_bytes) noexcept {
  return pool.address % line_bytes == 0 && pool.stride % line_bytes == 0 &&
         block_bytes % line_bytes == 0;
}

/// The part of an address that says where in a line of host memory a block begins; 0 for the other
/// side, and for both if all blocks have whole lines. A warp's request for each line that it
/// touches crosses the link, so it is not to touch one that its neighbour touches too.
struct lines {
  std::uint64_t source{};
  std::uint64_t destination{};
};

lines lines_of(block_copy const& between) {
  auto const& [source, destination, block_bytes] = between;
  if (has_whole_lines(source, block_bytes) && has_whole_lines(destination, block_bytes)) {
    return {};
  }
  auto const reads_host = known_memory(source.address, 1) == known_as::page_locked;
  auto const& host = reads_host ? source : destination;
  if (block_bytes < fewest_words * block_kernels::word_bytes ||
      has_whole_lines(host, block_bytes)) {
    return {};
  }
  constexpr auto within = line_bytes - block_kernels::word_bytes;
  return reads_host ? lines{within, 0} : lines{0, within};
}

}  // namespace

block_kernels::block_kernels(int device) : kernel_module{device, block_kernel_text().c_str()} {
  device_guard const guard{device};
  few_ = function("move_few");
  many_ = function("move_many");
  given_ = function("move_given");
}

bool block_kernels::can_move(block_copy const& between) noexcept {
  auto const& [source, destination, block_bytes] = between;
  return is_whole(source.address) && is_whole(source.stride) && is_whole(destination.address) &&
         is_whole(destination.stride) && is_whole(block_bytes) &&
         block_bytes / word_bytes < most_words && source.blocks < most_pool &&
         destination.blocks < most_pool;
}

template <typename... Extra>
void block_kernels::launch(CUfunction function, order const& by, std::size_t count,
                           Extra*... extra) const {
  auto [source, destination, block_bytes] = by.between;
  std::uint64_t source_stride = source.stride;
  std::uint64_t source_blocks = source.blocks;
  std::uint64_t destination_stride = destination.stride;
  std::uint64_t destination_blocks = destination.blocks;
  auto blocks = static_cast<std::uint32_t>(count);
  auto words = static_cast<std::uint32_t>(block_bytes / word_bytes);
  auto [source_lines, destination_lines] = lines_of(by.between);
  auto const is_spread = (source_lines | destination_lines) != 0;
  // A block that begins at the last word of a line ends that many places later.
  auto places =
      is_spread ? (words + 2 * (words_in_line - 1)) / words_in_line * words_in_line : words;
  auto wrong = by.wrong;
  std::array<void*, 12 + sizeof...(extra)> parameters{&source.address,
                                                      &source_stride,
                                                      &source_blocks,
                                                      &destination.address,
                                                      &destination_stride,
                                                      &destination_blocks,
                                                      &blocks,
                                                      &words,
                                                      &places,
                                                      &source_lines,
                                                      &destination_lines,
                                                      &wrong,
                                                      extra...};
  auto const all_places = std::uint64_t{places} * count;
  auto const wanted = (all_places + by.shape.threads - 1) / by.shape.threads;
  auto const grid = static_cast<unsigned int>(std::min<std::uint64_t>(wanted, by.shape.blocks));
  PYXFER_TRY(driver().cuLaunchKernel(function, grid, 1, 1, by.shape.threads, 1, 1, 0,
                                     by.on.handle(), parameters.data(), nullptr));
}

void block_kernels::move_few(order const& by, packed_pair const* pairs, std::size_t count) const {
  std::array<packed_pair, most_few_blocks> kept{};  // the driver reads all of the parameter
  std::copy_n(pairs, count, kept.begin());
  launch(few_, by, count, kept.data());
}

void block_kernels::move_many(order const& by, std::uintptr_t pairs, std::size_t count) const {
  launch(many_, by, count, &pairs);
}

void block_kernels::move_given(order const& by, std::uintptr_t from, std::uintptr_t to,
                               std::size_t count) const {
  launch(given_, by, count, &from, &to);
}

}  // namespace pyxfer
