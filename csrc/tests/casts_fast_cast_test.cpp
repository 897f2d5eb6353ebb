#include "casts/cast.hpp"
#include "casts/processor.hpp"

#include <gtest/gtest.h>

#include "casts_support.hpp"
#include "machine_code.hpp"

#include <algorithm>
#include <stdexcept>

namespace pyxfer::tests {
namespace {

using kind = item_kind;

struct fast_cast {
  kind from;
  kind to;
  cast_stores stores;
  cast_kernel kernel;
};

/// All but the plain ones.
std::vector<fast_cast> fast_casts() {
  std::vector<fast_cast> found;
  for (auto const from : every_kind()) {
    for (auto const to : every_kind()) {
      if (!can_cast(from, to)) { continue; }
      for (auto const stores : {cast_stores::streaming, cast_stores::cached}) {
        auto const kernels = cast_kernels(from, to, stores);
        for (std::size_t i = 1; i < kernels.size(); ++i) {
          found.push_back({from, to, stores, kernels[i]});
        }
      }
    }
  }
  return found;
}

class casts_fast : public ::testing::TestWithParam<fast_cast> {};

TEST_P(casts_fast, gives_the_bits_of_the_plain_one) {
  auto const& [from, to, stores, kernel] = GetParam();
  auto const source = items_of(from, 1'000'000, 2);
  EXPECT_TRUE(same_items(to, cast_all(kernel.cast, from, to, source),
                         cast_all(plain_cast(from, to), from, to, source)));
}

TEST_P(casts_fast, converts_every_size_at_every_alignment_and_touches_nothing_else) {
  auto const& [from, to, stores, kernel] = GetParam();
  expect_only_the_target_changes(kernel.cast, from, to, 200, 64);
}

std::string name_of(::testing::TestParamInfo<fast_cast> const& tested) {
  auto const& [from, to, stores, kernel] = tested.param;
  auto const* const how = stores == cast_stores::cached ? "_cached" : "";
  return std::string{word_of(from)} + "_to_" + word_of(to) + "_" + kernel.name + how;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(casts_fast);
INSTANTIATE_TEST_SUITE_P(of_this_processor, casts_fast, ::testing::ValuesIn(fast_casts()), name_of);

TEST(casts_fast_cast, has_the_plain_one_of_every_pair_first) {
  for (auto const from : every_kind()) {
    for (auto const to : every_kind()) {
      if (!can_cast(from, to)) {
        EXPECT_THROW(static_cast<void>(cast_of(from, to)), std::invalid_argument);
        continue;
      }
      auto const kernels = cast_kernels(from, to);
      EXPECT_STREQ(kernels.front().name, "plain");
      EXPECT_EQ(kernels.front().cast, plain_cast(from, to));
      EXPECT_EQ(kernels.back().cast, cast_of(from, to)) << words_of(from, to);
    }
  }
}

#ifdef __x86_64__

TEST(casts_fast_cast, uses_what_this_processor_has_for_the_usual_pairs) {
  auto const has = this_processor();
  std::vector<std::string> expected{"plain"};
  if (has.avx2 && has.f16c) { expected.emplace_back("avx2"); }
  if (has.avx512f) { expected.emplace_back("avx512"); }
  struct pair {
    kind from;
    kind to;
  };
  for (auto const& [from, to] :
       {pair{kind::f64, kind::f32}, pair{kind::f64, kind::f16}, pair{kind::f64, kind::bf16},
        pair{kind::f32, kind::f16}, pair{kind::f32, kind::bf16}, pair{kind::i64, kind::i32},
        pair{kind::u64, kind::u32}, pair{kind::i64, kind::u32}, pair{kind::u64, kind::i32}}) {
    std::vector<std::string> names;
    for (auto const& kernel : cast_kernels(from, to)) { names.emplace_back(kernel.name); }
    EXPECT_EQ(names, expected) << words_of(from, to);
  }
}

/// Without a fence, streaming stores are not ordered with what follows, not even with a lock.
TEST(casts_fast_cast_code, has_a_store_fence_in_every_kernel_that_streams) {
  for (auto const& [from, to, stores, kernel] : fast_casts()) {
    if (stores != cast_stores::streaming) { continue; }
    auto const code = code_of(reinterpret_cast<void const*>(kernel.cast));
    if (!code) { GTEST_SKIP() << "this program was stripped of its symbols"; }
    EXPECT_TRUE(has_store_fence(*code)) << words_of(from, to) << " with " << kernel.name;
  }
}

#endif

}  // namespace
}  // namespace pyxfer::tests
