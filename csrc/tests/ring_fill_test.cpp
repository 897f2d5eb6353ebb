#include "casts/processor.hpp"
#include "ring/fill.hpp"

#include "machine_code.hpp"
#include "ring_support.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace pyxfer::tests {
namespace {

constexpr std::size_t most_bytes = 600;
constexpr std::size_t alignments = 64;
constexpr std::size_t guard = 128;

class ring_fill : public ::testing::TestWithParam<fill_kernel> {};

TEST_P(ring_fill, copies_every_size_to_every_alignment_and_touches_nothing_else) {
  auto const source = random_bytes(most_bytes + alignments, 3);
  bytes const untouched(guard + alignments + most_bytes + guard, 0xA5);
  bytes target = untouched;
  // The alignment of the vector's memory varies.
  auto const to_line = alignments - reinterpret_cast<std::uintptr_t>(target.data()) % alignments;
  bytes expected = untouched;
  for (std::size_t place = 0; place < alignments; ++place) {
    auto const at = to_line + place;
    auto const* const from = source.data() + place * 7 % alignments;
    for (std::size_t size = 0; size <= most_bytes; ++size) {
      GetParam().copy(target.data() + at, from, size);
      std::memcpy(expected.data() + at, from, size);
      ASSERT_EQ(std::memcmp(target.data(), expected.data(), target.size()), 0)
          << size << " bytes to alignment " << place;
    }
    target = untouched;
    expected = untouched;
  }
}

TEST_P(ring_fill, copies_large_blocks) {
  constexpr std::size_t size = (std::size_t{1} << 20U) + 77;
  auto const source = random_bytes(size + 5, 4);
  bytes target(size);
  GetParam().copy(target.data(), source.data() + 5, size);
  EXPECT_EQ(std::memcmp(target.data(), source.data() + 5, size), 0);
}

INSTANTIATE_TEST_SUITE_P(of_this_processor, ring_fill,
                         ::testing::ValuesIn(executable_fill_kernels()), [](auto const& tested) {
                           std::string name{tested.param.name};
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(ring_fill_kind, is_named_in_words) {
  for (auto const kind : {fill_kind::plain, fill_kind::streaming, fill_kind::demoting}) {
    EXPECT_EQ(fill_kind_of(word_of(kind)), kind);
  }
  EXPECT_EQ(text_of<std::invalid_argument>([] { static_cast<void>(fill_kind_of("fast")); }),
            "unknown fill \"fast\"; known are plain, streaming and demoting");
}

#ifdef __x86_64__

/// Without a fence, streaming stores are not ordered with what follows, not even with a lock. A
/// test can only observe that with a device, so this one inspects the code.
TEST(ring_fill_code, has_a_store_fence_in_every_kernel_that_streams_or_demotes) {
  for (auto const& kernel : executable_fill_kernels()) {
    if (kernel.kind == fill_kind::plain) { continue; }
    auto const code = code_of(reinterpret_cast<void const*>(kernel.copy));
    if (!code) { GTEST_SKIP() << "this program was stripped of its symbols"; }
    EXPECT_TRUE(has_store_fence(*code)) << kernel.name;
  }
}

TEST(ring_fill_kind, is_demoting_only_if_the_processor_has_the_instruction) {
  auto const has = this_processor();
  auto const expected = has.cldemote && has.avx2 ? fill_kind::demoting : fill_kind::streaming;
  EXPECT_EQ(fill_kernel_of(fill_kind::demoting).kind, expected);
}

#endif

TEST(ring_fill_kind, has_the_best_kernel_of_this_processor) {
  EXPECT_STREQ(fill_kernel_of(fill_kind::plain).name, "plain");
  EXPECT_STREQ(fill_kernel_of(fill_kind::demoting).name, fill_kernels().back().name);
  EXPECT_EQ(fill_kernel_of(fill_kind::streaming).kind, fill_kind::streaming);
}

}  // namespace
}  // namespace pyxfer::tests
