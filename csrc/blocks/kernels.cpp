#include "blocks/kernels.hpp"

#include "blocks/kernel_text.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/error.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace pyxfer {
namespace {

bool is_whole(std::uint64_t value) noexcept { return value % block_kernels::word_bytes == 0; }

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
  auto wrong = by.wrong;
  std::array<void*, 9 + sizeof...(extra)> parameters{&source.address,
                                                     &source_stride,
                                                     &source_blocks,
                                                     &destination.address,
                                                     &destination_stride,
                                                     &destination_blocks,
                                                     &blocks,
                                                     &words,
                                                     &wrong,
                                                     extra...};
  auto const all_words = std::uint64_t{words} * count;
  auto const wanted = (all_words + by.shape.threads - 1) / by.shape.threads;
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
