#include "convert/kernels.hpp"

#include "casts/cast.hpp"
#include "convert/kernel_text.hpp"
#include "cuda/device.hpp"
#include "cuda/memory.hpp"
#include "engine_support.hpp"

#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pyxfer::tests {
namespace {

using kind = item_kind;
using bytes = std::vector<unsigned char>;

constexpr std::size_t guard_bytes = 64;
constexpr unsigned char guard_value = 0xA5;

std::vector<std::pair<kind, kind>> every_pair() {
  std::vector<std::pair<kind, kind>> made;
  for (unsigned i = 0; i < item_kinds * item_kinds; ++i) {
    auto const from = static_cast<kind>(i / item_kinds);
    auto const to = static_cast<kind>(i % item_kinds);
    if (can_cast(from, to)) { made.emplace_back(from, to); }
  }
  return made;
}

std::uint64_t item_at(bytes const& memory, std::size_t number, kind of) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, memory.data() + number * bytes_of(of), bytes_of(of));
  return bits;
}

void set_item(bytes& memory, std::size_t number, kind of, std::uint64_t bits) {
  std::memcpy(memory.data() + number * bytes_of(of), &bits, bytes_of(of));
}

/// The bits of infinity, or 0 for integers.
std::uint64_t infinity_of(kind of) {
  switch (of) {
    case kind::f16: return 0x7C00;
    case kind::bf16: return 0x7F80;
    case kind::f32: return 0x7F800000;
    case kind::f64: return 0x7FF0000000000000;
    default: return 0;
  }
}

bool is_nan(std::uint64_t bits, kind of) {
  auto const infinity = infinity_of(of);
  auto const sign = std::uint64_t{1} << (8 * bytes_of(of) - 1);
  return infinity != 0 && (bits & ~sign) > infinity;
}

bool same(std::uint64_t bits, std::uint64_t others, kind of) {
  return bits == others || (is_nan(bits, of) && is_nan(others, of));
}

/// Every item of up to 16 bits; of larger ones random bits, numbers of ordinary size, which a
/// random exponent seldom gives, and numbers beside those that rounding tells apart.
bytes items_of(kind of, std::size_t count, unsigned int seed) {
  bytes made(count * bytes_of(of));
  std::mt19937_64 random{seed};
  auto const bits = 8 * bytes_of(of);
  for (std::size_t i = 0; i < count; ++i) {
    auto item = bits <= 16 ? i : random();
    if (bits == 32 && i % 4 == 1) { item = (item & 0x8FFFFFFF) + 0x38000000; }
    if (bits == 32 && i % 4 == 2) { item = item >> 40U << (i % 24); }
    if (bits == 64 && i % 4 == 1) { item = (item & 0x80FFFFFFFFFFFFFF) + 0x3F00000000000000; }
    if (bits == 64 && i % 4 == 2) { item >>= i % 64; }
    if (bits > 16 && i % 4 == 3) {
      auto const middle = std::uint64_t{1} << (12 + i / 4 % (bits - 13));  // half of a last bit
      item = (item & ~(2 * middle - 1)) + middle + i % 3 - 1;
      if (infinity_of(of) != 0 && i % 8 == 3) { item = infinity_of(of) + i % 3 - 1; }
    }
    set_item(made, i, of, item);
  }
  return made;
}

/// Two arrays on the device, the second between guards.
struct arrays_on_device {
  arrays_on_device(kind from, kind to, bytes const& items)
      : count{items.size() / bytes_of(from)},
        source{items.size(), 0},
        destination{count * bytes_of(to) + 2 * guard_bytes, 0} {
    std::memcpy(inside(source.address()), items.data(), items.size());
    std::memset(inside(destination.address()), guard_value, destination.size());
  }
  [[nodiscard]] std::uintptr_t to() const { return destination.address() + guard_bytes; }
  [[nodiscard]] bytes result() const {
    auto const* const at = inside(destination.address());
    return {at, at + destination.size()};
  }

  std::size_t count;
  device_buffer source;
  device_buffer destination;
};

/// What the memory of a destination is after its items from number `first` on were written.
bytes expected_memory(bytes const& items, kind of, std::size_t first) {
  auto const begin = first * bytes_of(of);
  bytes made(items.size() + 2 * guard_bytes, guard_value);
  std::copy(items.begin() + static_cast<std::ptrdiff_t>(begin), items.end(),
            made.begin() + static_cast<std::ptrdiff_t>(guard_bytes + begin));
  return made;
}

/// The number of the first item that differs, or -1. Guards are items too.
long first_difference(bytes const& found, bytes const& expected, kind of) {
  if (found == expected) { return -1; }
  for (std::size_t i = 0; i < expected.size() / bytes_of(of); ++i) {
    if (!same(item_at(found, i, of), item_at(expected, i, of), of)) { return static_cast<long>(i); }
  }
  return -1;
}

bytes cast(kind from, kind to, bytes const& items) {
  bytes made(items.size() / bytes_of(from) * bytes_of(to));
  plain_cast(from, to)(made.data(), items.data(), items.size() / bytes_of(from));
  return made;
}

/// The items of an array where an order puts them, by one loop.
bytes placed(bytes const& items, kind of, item_order const& order) {
  bytes made(items.size());
  for (std::size_t i = 0; i < items.size() / bytes_of(of); ++i) {
    std::size_t place = 0;
    auto left = i;
    for (auto axis = order.axes; axis-- > 0; left /= order.extents.at(axis)) {
      place += left % order.extents.at(axis) * order.strides.at(axis);
    }
    set_item(made, place, of, item_at(items, i, of));
  }
  return made;
}

/// The order that makes axis `axes[i]` of an array the i-th.
item_order permutation(std::vector<std::uint64_t> const& extents,
                       std::vector<std::size_t> const& axes) {
  item_order made;
  made.axes = extents.size();
  std::copy(extents.begin(), extents.end(), made.extents.begin());
  std::uint64_t stride = 1;
  for (auto at = axes.rbegin(); at != axes.rend(); ++at) {
    made.strides.at(*at) = stride;
    stride *= extents.at(*at);
  }
  return made;
}

std::uint64_t items_in(item_order const& order) {
  return std::accumulate(order.extents.begin(), order.extents.begin() + order.axes,
                         std::uint64_t{1}, std::multiplies<>{});
}

class convert_kernels_test : public engine_test {
 protected:
  /// Converts all items from number `first` on in pieces of at most `piece`, and looks at all of
  /// the memory.
  static void expect_conversion(kind from, kind to, bytes const& items, item_order const& order,
                                std::size_t first, std::size_t piece) {
    arrays_on_device const arrays{from, to, items};
    convert_kernels const with{0, from, to};
    device_guard const guard{0};
    stream const on{0};
    for (auto at = first; at < arrays.count; at += piece) {
      with.convert(arrays.source.address(), arrays.to(), order, at,
                   std::min(piece, arrays.count - at), on.view());
    }
    ASSERT_EQ(cudaStreamSynchronize(on.handle()), cudaSuccess);
    auto const converted = cast(from, to, items);
    auto const wanted = order.axes == 0 ? converted : placed(converted, to, order);
    EXPECT_EQ(first_difference(arrays.result(), expected_memory(wanted, to, first), to), -1)
        << word_of(from) << " to " << word_of(to) << ", from item " << first;
  }
};

TEST_F(convert_kernels_test, convert_every_pair_as_the_host_does) {
  for (auto const& [from, to] : every_pair()) {
    auto const count = bytes_of(from) == 2 ? std::size_t{0x10000} + 7 : std::size_t{12007};
    expect_conversion(from, to, items_of(from, count, 1), {}, 0, count);
  }
}

TEST_F(convert_kernels_test, reorder_every_pair_as_the_host_converts) {
  for (auto const& [from, to] : every_pair()) {
    auto const order = permutation({5, 17, 3, 11}, {0, 2, 3, 1});
    expect_conversion(from, to, items_of(from, items_in(order), 2), order, 0, items_in(order));
  }
}

TEST_F(convert_kernels_test, convert_any_number_of_items_from_any_piece) {
  for (auto const& [from, to] : {std::pair{kind::u8, kind::f32},
                                 {kind::f32, kind::bf16},
                                 {kind::i8, kind::i64},
                                 {kind::u64, kind::i8},
                                 {kind::f64, kind::f32},
                                 {kind::u8, kind::i8}}) {
    for (std::size_t const count : {1, 2, 15, 16, 17, 31, 1000, 4096, 16411}) {
      for (std::size_t const first : {0, 16, 4080}) {
        if (first < count) {
          expect_conversion(from, to, items_of(from, count, 3), {}, first, count);
          expect_conversion(from, to, items_of(from, count, 4), {}, first, 4096);
        }
      }
    }
  }
}

/// More than a launch has threads for at once.
TEST_F(convert_kernels_test, convert_and_reorder_large_arrays) {
  constexpr std::size_t at_once = std::size_t{8} * 132 * 256 * loads_in_flight;
  auto const many = 16 * (at_once + 5000) + 3;
  expect_conversion(kind::u8, kind::u8, items_of(kind::u8, many, 5), {}, 0, many);
  auto const order = permutation({at_once / 96 + 50, 32, 3}, {0, 2, 1});
  expect_conversion(kind::u8, kind::u16, items_of(kind::u8, items_in(order), 6), order, 0,
                    items_in(order));
}

TEST_F(convert_kernels_test, put_two_to_six_axes_into_every_order) {
  std::vector<std::uint64_t> const extents{3, 1, 7, 2, 16, 5};
  for (std::size_t axes = 2; axes <= item_order::most_axes; ++axes) {
    std::vector<std::size_t> by(axes);
    std::iota(by.begin(), by.end(), 0);
    std::mt19937 random{7};
    for (auto round = 0; round < 12; ++round) {
      auto const order = permutation({extents.begin(), extents.begin() + axes}, by);
      auto const count = items_in(order);
      expect_conversion(kind::u8, kind::f32, items_of(kind::u8, count, 8), order, 0, count);
      expect_conversion(kind::f64, kind::f16, items_of(kind::f64, count, 9), order, 0, 48);
      std::shuffle(by.begin(), by.end(), random);
    }
  }
}

TEST_F(convert_kernels_test, write_only_the_places_of_the_piece) {
  auto const order = permutation({4, 16, 3}, {2, 0, 1});
  auto const items = items_of(kind::i16, 192, 10);
  arrays_on_device const arrays{kind::i16, kind::i16, items};
  convert_kernels const with{0, kind::i16, kind::i16};
  device_guard const guard{0};
  stream const on{0};
  with.convert(arrays.source.address(), arrays.to(), order, 64, 33, on.view());
  ASSERT_EQ(cudaStreamSynchronize(on.handle()), cudaSuccess);
  bytes numbers(192);
  std::iota(numbers.begin(), numbers.end(), static_cast<unsigned char>(0));
  auto const came_from = placed(numbers, kind::u8, order);
  auto const all = placed(items, kind::i16, order);
  auto const result = arrays.result();
  for (std::size_t i = 0; i < 192; ++i) {
    auto const written = came_from[i] >= 64 && came_from[i] < 97;
    EXPECT_EQ(item_at(result, i + guard_bytes / 2, kind::i16),
              written ? item_at(all, i, kind::i16) : 0xA5A5U);
  }
}

TEST_F(convert_kernels_test, simplify_an_order) {
  // NHWC to NCHW: height and width stay together.
  auto const images = simplified(permutation({8, 32, 16, 3}, {0, 3, 1, 2}));
  EXPECT_EQ(images.axes, 3U);
  EXPECT_EQ(images.extents[1], 512U);
  EXPECT_EQ(images.strides[1], 1U);
  // One image has no outer axis, and grey ones keep their order.
  EXPECT_EQ(simplified(permutation({1, 32, 16, 3}, {0, 3, 1, 2})).axes, 2U);
  EXPECT_EQ(simplified(permutation({8, 32, 16, 1}, {0, 3, 1, 2})).axes, 0U);
  EXPECT_EQ(simplified(permutation({4, 5, 6}, {0, 1, 2})).axes, 0U);
  EXPECT_EQ(simplified(permutation({1, 1}, {1, 0})).axes, 0U);
}

TEST_F(convert_kernels_test, refuse_what_they_cannot_convert) {
  EXPECT_NE(text_of<std::invalid_argument>([] {
              convert_kernels const with{0, kind::f32, kind::i32};
            }).find("float32 does not become int32"),
            std::string::npos);
  convert_kernels const with{0, kind::u8, kind::f32};
  device_buffer const memory{4096, 0};
  device_guard const guard{0};
  stream const on{0};
  auto const at = memory.address();
  auto const refusal = [&](std::uintptr_t source, std::uintptr_t destination,
                           item_order const& order, std::uint64_t first, std::uint64_t count) {
    return text_of<std::invalid_argument>(
        [&] { with.convert(source, destination, order, first, count, on.view()); });
  };
  auto const order = permutation({16, 3}, {1, 0});
  EXPECT_NE(refusal(at + 4, at, {}, 0, 16).find("address"), std::string::npos);
  EXPECT_NE(refusal(at, at + 8, {}, 0, 16).find("address"), std::string::npos);
  EXPECT_NE(refusal(at, at, {}, 8, 16).find("first item"), std::string::npos);
  EXPECT_NE(refusal(at, at, order, 32, 17).find("fewer items"), std::string::npos);
  auto large = permutation({1U << 16U, (1U << 16U) + 1}, {1, 0});
  EXPECT_NE(refusal(at, at, large, 0, 16).find("another order"), std::string::npos);
  auto wide = order;
  wide.strides[0] = std::uint64_t{1} << 29U;
  EXPECT_NE(refusal(at, at, wide, 0, 16).find("behind"), std::string::npos);
  large.axes = item_order::most_axes + 1;
  EXPECT_NE(refusal(at, at, large, 0, 16).find("6 axes"), std::string::npos);
  with.convert(at, at, order, 0, 0, on.view());
  EXPECT_EQ(count_of("cuLaunchKernel"), 0);
}

TEST_F(convert_kernels_test, are_for_every_device_and_driver) {
  for (auto const& [from, to] : every_pair()) {
    EXPECT_EQ(convert_kernel_text(from, to).rfind(".version 6.0\n.target sm_50\n", 0), 0U);
  }
}

TEST_F(convert_kernels_test, are_unavailable_if_the_driver_does_not_make_them) {
  hostrt::fail("cuModuleLoadData", 1, cudaErrorUnsupportedPtxVersion);
  EXPECT_THROW((convert_kernels{0, kind::u8, kind::f32}), kernels_unavailable_error);
}

TEST_F(convert_kernels_test, report_every_failure_and_leave_nothing) {
  expect_every_failure_reported([] {
    convert_kernels const with{0, kind::u8, kind::f32};
    device_buffer const memory{4096, 0};
    device_guard const guard{0};
    stream const on{0};
    auto const order = permutation({16, 3}, {1, 0});
    with.convert(memory.address(), memory.address() + 1024, {}, 0, 48, on.view());
    with.convert(memory.address(), memory.address() + 1024, order, 0, 48, on.view());
    PYXFER_TRY(cudaStreamSynchronize(on.handle()));
  });
}

}  // namespace
}  // namespace pyxfer::tests
