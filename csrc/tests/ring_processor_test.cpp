#include "ring/processor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace pyxfer::tests {
namespace {

constexpr std::uint32_t osxsave = 0x0800'0000;
constexpr std::uint32_t avx2_and_avx512f = 0x0001'0020;
constexpr std::uint32_t cldemote = 0x0200'0000;
constexpr std::uint64_t sse_state = 0x03;
constexpr std::uint64_t ymm_state = 0x07;
constexpr std::uint64_t zmm_state = 0xE7;

TEST(ring_processor, has_what_it_and_the_system_support) {
  auto const found = features_of({osxsave, avx2_and_avx512f, cldemote, zmm_state});
  EXPECT_TRUE(found.avx2);
  EXPECT_TRUE(found.avx512f);
  EXPECT_TRUE(found.cldemote);
}

TEST(ring_processor, has_no_feature_that_its_words_do_not_name) {
  auto const found = features_of({osxsave, 0, 0, zmm_state});
  EXPECT_FALSE(found.avx2);
  EXPECT_FALSE(found.avx512f);
  EXPECT_FALSE(found.cldemote);
}

TEST(ring_processor, has_no_avx_where_the_system_does_not_save_its_registers) {
  auto const found = features_of({osxsave, avx2_and_avx512f, cldemote, sse_state});
  EXPECT_FALSE(found.avx2);
  EXPECT_FALSE(found.avx512f);
  EXPECT_TRUE(found.cldemote);
}

TEST(ring_processor, has_avx2_alone_where_the_system_saves_no_masks) {
  auto const found = features_of({osxsave, avx2_and_avx512f, 0, ymm_state});
  EXPECT_TRUE(found.avx2);
  EXPECT_FALSE(found.avx512f);
}

TEST(ring_processor, has_no_avx512_where_the_system_saves_one_of_its_states_only) {
  for (std::uint64_t const part : {0x20, 0x40, 0x80}) {
    EXPECT_FALSE(features_of({osxsave, avx2_and_avx512f, 0, zmm_state & ~part}).avx512f) << part;
  }
}

TEST(ring_processor, has_no_avx_without_xsave) {
  auto const found = features_of({0, avx2_and_avx512f, 0, zmm_state});
  EXPECT_FALSE(found.avx2);
  EXPECT_FALSE(found.avx512f);
}

#ifdef __x86_64__

/// Whether /proc/cpuinfo lists a feature of the processor.
bool is_listed(std::string const& wanted) {
  std::ifstream file{"/proc/cpuinfo"};
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("flags", 0) == 0) { break; }
  }
  std::istringstream words{line};
  return std::find(std::istream_iterator<std::string>{words}, {}, wanted) !=
         std::istream_iterator<std::string>{};
}

TEST(ring_processor, has_the_features_that_the_kernel_lists) {
  auto const found = this_processor();
  EXPECT_EQ(found.avx2, is_listed("avx2"));
  EXPECT_EQ(found.avx512f, is_listed("avx512f"));
  EXPECT_EQ(found.cldemote, is_listed("cldemote"));
}

#else

TEST(ring_processor, has_none_of_the_features_on_other_architectures) {
  auto const found = this_processor();
  EXPECT_FALSE(found.avx2 || found.avx512f || found.cldemote);
}

#endif

}  // namespace
}  // namespace pyxfer::tests
