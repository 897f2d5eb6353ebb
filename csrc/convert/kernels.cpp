#include "convert/kernels.hpp"

#include "casts/cast.hpp"
#include "convert/kernel_text.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/error.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pyxfer {
namespace {

constexpr unsigned int threads = 256;
/// An H100 runs this many at the same time: 8 on each of 132 multiprocessors.
constexpr std::uint64_t most_blocks = 8 * 132;

std::string checked_text(item_kind from, item_kind to) {
  if (!can_cast(from, to)) {
    throw std::invalid_argument{std::string{word_of(from)} + " does not become " + word_of(to)};
  }
  return convert_kernel_text(from, to);
}

void check(bool holds, char const* otherwise) {
  if (!holds) { throw std::invalid_argument{otherwise}; }
}

std::uint32_t low(std::uint64_t value) noexcept { return static_cast<std::uint32_t>(value); }

void check_order(item_order const& order, std::uint64_t end) {
  check(order.axes <= item_order::most_axes, "an order has at most 6 axes");
  if (order.axes == 0) { return; }
  std::uint64_t items{1};
  std::uint64_t last_place{0};
  for (std::size_t i = 0; i < order.axes; ++i) {
    auto const extent = order.extents.at(i);
    check(extent == 0 || items <= convert_kernels::most_ordered / extent,
          "more than 4294967296 items cannot be put into another order");
    items *= extent;
    auto const last = std::max<std::uint64_t>(extent, 1) - 1;
    auto const stride = order.strides.at(i);
    check(last == 0 || stride <= (convert_kernels::most_ordered - 1 - last_place) / last,
          "an item would go behind the destination's first 4294967296");
    last_place += last * stride;
  }
  check(end <= items, "there are fewer items in the order");
}

/// Queues a kernel whose threads have `loads_in_flight` of the parts each, or more.
template <typename... Parameters>
void launch(CUfunction function, std::uint64_t parts, stream_view on, Parameters&... parameters) {
  std::array<void*, sizeof...(parameters)> addresses{&parameters...};
  constexpr auto each = std::uint64_t{loads_in_flight} * threads;
  auto const wanted = std::clamp<std::uint64_t>((parts + each - 1) / each, 1, most_blocks);
  PYXFER_TRY(driver().cuLaunchKernel(function, static_cast<unsigned int>(wanted), 1, 1, threads, 1,
                                     1, 0, on.handle(), addresses.data(), nullptr));
}

}  // namespace

item_order simplified(item_order const& order) noexcept {
  item_order made;
  for (std::size_t i = 0; i < order.axes; ++i) {
    auto const extent = order.extents[i];
    auto const stride = order.strides[i];
    if (extent == 1) { continue; }
    auto const goes_on = made.axes > 0 && made.strides[made.axes - 1] == extent * stride;
    if (!goes_on) { made.extents[made.axes++] = 1; }
    made.extents[made.axes - 1] *= extent;
    made.strides[made.axes - 1] = stride;
  }
  if (made.axes == 1 && made.strides[0] == 1) { made.axes = 0; }
  return made;
}

convert_kernels::convert_kernels(int device, item_kind from, item_kind to)
    : kernel_module{device, checked_text(from, to).c_str()}, from_{from}, to_{to} {
  device_guard const guard{device};
  in_order_ = function("convert");
  reordered_ = function("reorder");
}

void convert_kernels::convert(std::uintptr_t source, std::uintptr_t destination,
                              item_order const& order, std::uint64_t first, std::uint64_t count,
                              stream_view on) const {
  check(source % alignment == 0 && destination % alignment == 0,
        "an address is not a multiple of 16 bytes");
  check(first % alignment == 0, "the first item's number is not a multiple of 16");
  check_order(order, first + count);
  if (count == 0) { return; }
  auto const by = simplified(order);
  if (by.axes != 0) { return reorder(source, destination, by, first, count, on); }
  in_order(source + first * bytes_of(from_), destination + first * bytes_of(to_), count, on);
}

void convert_kernels::in_order(std::uintptr_t source, std::uintptr_t destination,
                               std::uint64_t count, stream_view on) const {
  auto groups = count / items_in_group(from_, to_);
  launch(in_order_, groups, on, source, destination, groups, count);
}

void convert_kernels::reorder(std::uintptr_t source, std::uintptr_t destination,
                              item_order const& order, std::uint64_t first, std::uint64_t count,
                              stream_view on) const {
  struct axis {
    std::uint32_t extent;
    std::uint32_t stride;
    std::uint64_t inverse;
  };
  std::array<axis, item_order::most_axes - 1> divided{};
  for (std::size_t i = 0; i + 1 < order.axes; ++i) {
    auto const from_inside = order.axes - 1 - i;
    auto const extent = order.extents.at(from_inside);
    divided.at(i) = {low(extent), low(order.strides.at(from_inside)),
                     ~std::uint64_t{0} / extent + 1};
  }
  auto end = first + count;
  auto axes = low(order.axes);
  auto outer = low(order.strides[0]);
  auto& [a, b, c, d, e] = divided;
  launch(reordered_, count, on, source, destination, first, end, axes, outer, a.extent, a.stride,
         a.inverse, b.extent, b.stride, b.inverse, c.extent, c.stride, c.inverse, d.extent,
         d.stride, d.inverse, e.extent, e.stride, e.inverse);
}

}  // namespace pyxfer
