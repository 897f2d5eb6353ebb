#include "ring/layout.hpp"

#include "ring_support.hpp"

namespace pyxfer::tests {
namespace {

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
