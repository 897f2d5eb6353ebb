#include "casts/processor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace pyxfer::tests {
namespace {

constexpr std::uint32_t osxsave = 0x0800'0000;
constexpr std::uint32_t f16c = 0x2000'0000;
constexpr std::uint32_t avx2_and_avx512f = 0x0001'0020;
constexpr std::uint32_t cldemote = 0x0200'0000;
constexpr std::uint64_t sse_state = 0x03;
constexpr std::uint64_t ymm_state = 0x07;
constexpr std::uint64_t zmm_state = 0xE7;

TEST(casts_processor, has_what_it_and_the_system_support) {
  struct known {
    char const* what;
    processor_words words;
    bool avx2;
    bool has_f16c;
    bool avx512f;
    bool cldemote;
  };
  auto const all = osxsave | f16c;
  auto const both = avx2_and_avx512f;
  for (auto const& [what, words, avx2, has_f16c, avx512f, has_cldemote] :
       {known{"everything", {all, both, cldemote, zmm_state}, true, true, true, true},
        known{"no feature", {osxsave, 0, 0, zmm_state}, false, false, false, false},
        known{"only F16C", {all, 0, 0, ymm_state}, false, true, false, false},
        known{"no saved register", {all, both, cldemote, sse_state}, false, false, false, true},
        known{"no saved mask", {osxsave, both, 0, ymm_state}, true, false, false, false},
        known{"two of three", {osxsave, both, 0, zmm_state & ~0x20U}, true, false, false, false},
        known{"two of three", {osxsave, both, 0, zmm_state & ~0x40U}, true, false, false, false},
        known{"two of three", {osxsave, both, 0, zmm_state & ~0x80U}, true, false, false, false},
        known{"no xsave", {f16c, both, 0, zmm_state}, false, false, false, false}}) {
    SCOPED_TRACE(what);
    auto const found = features_of(words);
    EXPECT_EQ(found.avx2, avx2);
    EXPECT_EQ(found.f16c, has_f16c);
    EXPECT_EQ(found.avx512f, avx512f);
    EXPECT_EQ(found.cldemote, has_cldemote);
  }
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

TEST(casts_processor, has_the_features_that_the_kernel_lists) {
  auto const found = this_processor();
  EXPECT_EQ(found.avx2, is_listed("avx2"));
  EXPECT_EQ(found.f16c, is_listed("f16c"));
  EXPECT_EQ(found.avx512f, is_listed("avx512f"));
  EXPECT_EQ(found.cldemote, is_listed("cldemote"));
}

#else

TEST(casts_processor, has_none_of_the_features_on_other_architectures) {
  auto const found = this_processor();
  EXPECT_FALSE(found.avx2 || found.f16c || found.avx512f || found.cldemote);
}

#endif

}  // namespace
}  // namespace pyxfer::tests
