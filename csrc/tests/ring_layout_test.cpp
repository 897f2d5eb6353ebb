#include "ring/layout.hpp"

#include "ring_support.hpp"

#include <limits>
#include <random>
#include <stdexcept>

namespace pyxfer::tests {
namespace {

constexpr auto most = std::numeric_limits<std::ptrdiff_t>::max();

fill_function best() { return fill_kernel_of(fill_kind::streaming).copy; }

bytes read_in_parts(layout const& from, std::size_t part) {
  bytes found(from.bytes());
  for (std::size_t at = 0; at < from.bytes(); at += part) {
    from.read(at, std::min(from.bytes(), at + part), found.data() + at, best());
  }
  return found;
}

void write_in_parts(layout const& to, bytes const& items, std::size_t part) {
  for (std::size_t at = 0; at < to.bytes(); at += part) {
    to.write(at, std::min(to.bytes(), at + part), items.data() + at, best());
  }
}

std::string refusal(std::ptrdiff_t itemsize, numbers const& shape, numbers const& strides,
                    std::uintptr_t address = 4096) {
  return text_of<std::invalid_argument>(
      [&] { layout const made{address, itemsize, shape, strides}; });
}

TEST(ring_layout, reads_any_array_in_the_order_of_its_indices) {
  for (unsigned int seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    auto const source = random_array(seed);
    auto const expected = source.contents();
    EXPECT_EQ(source.view().bytes(), expected.size());
    EXPECT_EQ(read_in_parts(source.view(), expected.size()), expected);
    EXPECT_EQ(read_in_parts(source.view(), 1 + seed % 97), expected);
  }
}

TEST(ring_layout, writes_any_array_and_nothing_between_its_items) {
  for (unsigned int seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    auto const target = random_array(seed);
    auto const items = random_bytes(target.view().bytes(), seed + 1);
    auto const expected = target.memory_with(items);
    write_in_parts(target.view(), items, 1 + seed % 97);
    EXPECT_EQ(target.memory(), expected);
  }
}

TEST(ring_layout, reads_several_arrays_into_one_block_with_zeros_between) {
  for (unsigned int seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random{seed};
    std::vector<bytes> arrays(1 + random() % 8);
    std::vector<layout::part> parts;
    bytes expected;
    for (auto& each : arrays) {
      each = random_bytes(random() % 200, static_cast<unsigned int>(random()));
      expected.resize(expected.size() + random() % 3 * 20);
      parts.push_back(
          {reinterpret_cast<std::uintptr_t>(each.data()), each.size(), expected.size()});
      expected.insert(expected.end(), each.begin(), each.end());
    }
    layout const block{parts};
    EXPECT_FALSE(block.is_contiguous());
    ASSERT_EQ(block.bytes(), expected.size());
    EXPECT_EQ(read_in_parts(block, expected.size() + 1), expected);
    EXPECT_EQ(read_in_parts(block, 1 + seed % 97), expected);
  }
}

TEST(ring_layout, refuses_parts_that_overlap_or_have_no_address) {
  EXPECT_THROW((layout{{{4096, 10, 0}, {4096, 10, 9}}}), std::invalid_argument);
  EXPECT_THROW((layout{{{0, 1, 0}}}), std::invalid_argument);
  EXPECT_THROW((layout{{{4096, 2, std::numeric_limits<std::size_t>::max()}}}),
               std::invalid_argument);
  EXPECT_EQ((layout{{{0, 0, 0}, {4096, 10, 256}}}).bytes(), 266U);
}

TEST(ring_layout, transposes_fortran_order_in_both_directions) {
  for (std::ptrdiff_t const itemsize : {1, 2, 4, 8, 16, 24}) {
    SCOPED_TRACE(itemsize);
    array const made{itemsize,
                     {3, 70, 90},
                     {itemsize, 3 * itemsize + 1, 70 * (3 * itemsize + 1)},
                     static_cast<unsigned int>(itemsize)};
    EXPECT_EQ(read_in_parts(made.view(), 5000), made.contents());
    array const plane{itemsize, {70, 90}, {itemsize, 70 * itemsize}};
    EXPECT_EQ(read_in_parts(plane.view(), 70007), plane.contents());
    auto const items = random_bytes(plane.view().bytes(), 9);
    auto const expected = plane.memory_with(items);
    write_in_parts(plane.view(), items, 70007);
    EXPECT_EQ(plane.memory(), expected);
  }
}

TEST(ring_layout, reads_an_item_again_if_a_stride_is_zero) {
  array const repeated{4, {3, 5, 2}, {0, 4, 0}};
  EXPECT_EQ(read_in_parts(repeated.view(), 7), repeated.contents());
}

TEST(ring_layout, without_dimensions_is_one_item) {
  array const one{8, {}, {}};
  EXPECT_EQ(one.view().bytes(), 8U);
  EXPECT_TRUE(one.view().is_contiguous());
  EXPECT_EQ(read_in_parts(one.view(), 3), one.contents());
}

TEST(ring_layout, with_an_extent_of_zero_has_no_bytes_and_needs_no_memory) {
  for (auto const& shape : {numbers{0}, numbers{3, 0}, numbers{0, most}, numbers{most, most, 0}}) {
    layout const made{0, 8, shape, numbers(shape.size(), 8)};
    EXPECT_EQ(made.bytes(), 0U);
    EXPECT_TRUE(made.is_contiguous() && made.is_disjoint());
  }
}

TEST(ring_layout, is_contiguous_if_its_items_are_in_c_order_without_gaps) {
  EXPECT_TRUE((layout{64, 4, {3, 5}, {20, 4}}.is_contiguous()));
  EXPECT_TRUE((layout{64, 4, {3, 1, 5}, {20, -7, 4}}.is_contiguous()));
  EXPECT_FALSE((layout{64, 4, {3, 5}, {4, 12}}.is_contiguous()));
  EXPECT_FALSE((layout{64, 4, {3, 5}, {24, 4}}.is_contiguous()));
  EXPECT_FALSE((layout{64, 4, {5}, {-4}}.is_contiguous()));
}

TEST(ring_layout, is_disjoint_if_no_byte_belongs_to_two_items) {
  for (unsigned int seed = 0; seed < 50; ++seed) {
    EXPECT_TRUE(random_array(seed).view().is_disjoint());
  }
  EXPECT_FALSE((layout{64, 4, {3, 5}, {0, 4}}.is_disjoint()));
  EXPECT_FALSE((layout{64, 4, {5}, {3}}.is_disjoint()));
  EXPECT_FALSE((layout{64, 4, {5, 4}, {4, 4}}.is_disjoint()));
  EXPECT_FALSE((layout{64, 4, {5, 4}, {-8, 4}}.is_disjoint()));
}

TEST(ring_layout, is_refused_as_a_destination_if_its_items_overlap) {
  EXPECT_NO_THROW(validate_destination({64, 4, {3, 5}, {-20, 4}}));
  EXPECT_EQ(text_of<std::invalid_argument>([] { validate_destination({64, 4, {3, 5}, {0, 4}}); }),
            "the items of the destination overlap or interleave: download into an array with its "
            "own memory");
}

TEST(ring_layout, needs_a_stride_for_each_dimension) {
  EXPECT_EQ(refusal(4, {3, 5}, {4}),
            "an array has up to 64 dimensions and one stride for each: shape has 2 and strides has "
            "1");
  EXPECT_EQ(
      refusal(4, numbers(65, 1), numbers(65, 4)),
      "an array has up to 64 dimensions and one stride for each: shape has 65 and strides has "
      "65");
  EXPECT_NO_THROW((layout{64, 4, numbers(64, 1), numbers(64, 4)}));
}

TEST(ring_layout, refuses_invalid_numbers) {
  EXPECT_EQ(refusal(0, {3}, {4}), "an item has at least one byte");
  EXPECT_EQ(refusal(-4, {3}, {4}), "an item has at least one byte");
  EXPECT_EQ(refusal(4, {3, -1}, {4, 4}), "an array has no dimension of -1 items");
  EXPECT_EQ(refusal(4, {3}, {4}, 0), "an array needs the address of its first item");
}

TEST(ring_layout, with_more_bytes_than_can_be_addressed_is_refused) {
  constexpr auto text = "an array of that shape has more bytes than can be addressed";
  EXPECT_EQ(refusal(4, {most}, {0}), text);
  EXPECT_EQ(refusal(1, {most, 2}, {0, 0}), text);
  EXPECT_EQ(refusal(8, {most / 4, most / 4}, {0, 0}), text);
}

TEST(ring_layout, refuses_strides_beyond_the_address_space) {
  constexpr auto text = "an array with those strides leaves the address space";
  EXPECT_EQ(refusal(4, {3}, {most}), text);
  EXPECT_EQ(refusal(4, {2, 2}, {most, most}), text);
  EXPECT_EQ(refusal(4, {2}, {-8192}), text);
  EXPECT_EQ(refusal(4, {2}, {8}, UINTPTR_MAX - 8), text);
  EXPECT_NO_THROW((layout{4096, 4, {2}, {-4096}}));
}

std::uintptr_t address(bytes const& of) { return reinterpret_cast<std::uintptr_t>(of.data()); }
std::uintptr_t address(bytes& of) { return reinterpret_cast<std::uintptr_t>(of.data()); }

fill_function plain() { return fill_kernel_of(fill_kind::plain).copy; }

TEST(ring_items, of_every_size_are_copied_with_steps) {
  for (std::size_t const size :
       {1U, 2U, 3U, 4U, 5U, 7U, 8U, 12U, 16U, 17U, 64U, 4095U, 4096U, 5000U}) {
    constexpr std::size_t count = 5;
    auto const source = random_bytes(count * (size + 3), 1);
    bytes target(count * (size + 2), 0xA5);
    auto expected = target;
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(expected.data() + i * (size + 2), source.data() + i * (size + 3), size);
    }
    copy_items({address(target), static_cast<std::ptrdiff_t>(size + 2)},
               {address(source), static_cast<std::ptrdiff_t>(size + 3)}, count, size, plain());
    EXPECT_EQ(target, expected) << size;
  }
}

TEST(ring_items, can_have_negative_steps) {
  bytes const source{1, 2, 3, 4, 5, 6};
  bytes target(6);
  copy_items({address(target), 2}, {address(source) + 4, -2}, 3, 2, plain());
  EXPECT_EQ(target, (bytes{5, 6, 3, 4, 1, 2}));
}

TEST(ring_items, of_many_bytes_are_copied_by_the_kernel) {
  static int calls = 0;
  auto const counting = [](void* /*to*/, void const* /*from*/, std::size_t /*size*/) { ++calls; };
  bytes memory(8192);
  copy_items({address(memory), 4096}, {address(memory), 4096}, 2, 4096, counting);
  EXPECT_EQ(calls, 2);
  copy_items({address(memory), 4096}, {address(memory), 4096}, 2, 4095, counting);
  EXPECT_EQ(calls, 2);
}

/// The items of a row are adjacent in the source, and those of a column in the target.
void expect_transposed(std::size_t columns, std::size_t rows, std::size_t size) {
  SCOPED_TRACE(std::to_string(columns) + " x " + std::to_string(rows) + " of " +
               std::to_string(size));
  auto const source = random_bytes(columns * rows * size, 1);
  bytes target(source.size(), 0xA5);
  bytes expected(source.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      std::memcpy(expected.data() + (c * rows + r) * size, source.data() + (r * columns + c) * size,
                  size);
    }
  }
  auto const step = static_cast<std::ptrdiff_t>(size);
  copy_transposed({address(target), step, static_cast<std::ptrdiff_t>(rows) * step},
                  {address(source), step, static_cast<std::ptrdiff_t>(columns) * step}, columns,
                  rows, size);
  EXPECT_EQ(target, expected);
}

TEST(ring_items, of_a_grid_are_transposed) {
  for (std::size_t const size : {1U, 2U, 3U, 4U, 8U, 12U, 16U}) {
    expect_transposed(1, 1, size);
    expect_transposed(64 / size, 64 / size, size);
    expect_transposed(64 / size + 1, 3 * (64 / size) - 1, size);
    expect_transposed(7, 130, size);
  }
}

}  // namespace
}  // namespace pyxfer::tests
