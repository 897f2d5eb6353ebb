#include "ring/fill.hpp"

#include "ring_support.hpp"

#include <stdexcept>

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
  // Where the vector's own memory begins is a matter of chance.
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

TEST_P(ring_fill, copies_much) {
  constexpr std::size_t size = (std::size_t{1} << 20U) + 77;
  auto const source = random_bytes(size + 5, 4);
  bytes target(size);
  GetParam().copy(target.data(), source.data() + 5, size);
  EXPECT_EQ(std::memcmp(target.data(), source.data() + 5, size), 0);
}

INSTANTIATE_TEST_SUITE_P(of_this_processor, ring_fill, ::testing::ValuesIn(fill_kernels()),
                         [](auto const& each) {
                           std::string name{each.param.name};
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

TEST(ring_fill_kind, has_the_best_kernel_of_this_processor) {
  EXPECT_STREQ(fill_kernel_of(fill_kind::plain).name, "plain");
  EXPECT_STREQ(fill_kernel_of(fill_kind::demoting).name, fill_kernels().back().name);
#ifdef __x86_64__
  EXPECT_EQ(fill_kernel_of(fill_kind::streaming).kind, fill_kind::streaming);
#endif
}

}  // namespace
}  // namespace pyxfer::tests
