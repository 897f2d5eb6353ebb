#include "ring/plan.hpp"

#include "engine_support.hpp"

#include <random>

namespace pyxfer::tests {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

ring_settings with(int threads, std::size_t chunk_bytes) {
  return {threads, chunk_bytes, 2, fill_kind::plain, 0};
}

std::vector<std::size_t> sizes(chunk_plan const& plan) {
  std::vector<std::size_t> found;
  found.reserve(plan.chunks());
  for (std::size_t i = 0; i < plan.chunks(); ++i) { found.push_back(plan.at(i).bytes()); }
  return found;
}

void expect_sound(std::size_t bytes, ring_settings const& by) {
  SCOPED_TRACE(std::to_string(bytes) + " bytes, " + std::to_string(by.threads) + " threads, " +
               std::to_string(by.chunk_bytes));
  chunk_plan const plan{bytes, by};
  std::size_t end = 0;
  for (std::size_t i = 0; i < plan.chunks(); ++i) {
    auto const part = plan.at(i);
    ASSERT_EQ(part.begin, end);
    ASSERT_EQ(part.begin % 4096, 0U);
    ASSERT_GT(part.end, part.begin);
    ASSERT_LE(part.bytes(), by.chunk_bytes);
    end = part.end;
  }
  EXPECT_EQ(end, bytes);
  EXPECT_GE(plan.threads(), 1);
  EXPECT_LE(plan.threads(), by.threads);
  EXPECT_LE(static_cast<std::size_t>(plan.threads()), std::max<std::size_t>(1, plan.chunks()));
}

TEST(ring_plan, covers_every_byte_once_from_page_to_page_in_chunks_that_fit) {
  std::mt19937 random{1};
  for (auto const chunk : {4 * kib, 64 * kib, 256 * kib, mib, 4 * mib}) {
    for (int const threads : {1, 2, 3, 8, 64}) {
      for (auto const near : {std::size_t{0}, chunk, 2 * chunk, 100 * chunk}) {
        for (int const beyond : {-4097, -1, 0, 1, 4096, 5000}) {
          if (beyond < 0 && near < 8192) { continue; }
          expect_sound(near + static_cast<std::size_t>(beyond), with(threads, chunk));
        }
      }
      for (int i = 0; i < 10; ++i) { expect_sound(random() % (200 * chunk), with(threads, chunk)); }
    }
  }
}

TEST(ring_plan, of_nothing_has_no_chunks) {
  chunk_plan const plan{0, with(4, mib)};
  EXPECT_EQ(plan.chunks(), 0U);
  EXPECT_EQ(plan.threads(), 1);
}

TEST(ring_plan, of_little_is_for_one_thread) {
  for (std::size_t const bytes : {std::size_t{1}, std::size_t{4096}, 128 * kib}) {
    chunk_plan const plan{bytes, with(8, mib)};
    EXPECT_EQ(plan.chunks(), 1U);
    EXPECT_EQ(plan.threads(), 1);
  }
}

TEST(ring_plan, of_more_is_for_as_many_threads_as_have_a_chunk) {
  EXPECT_EQ((chunk_plan{128 * kib + 1, with(8, mib)}.threads()), 2);
  EXPECT_EQ((chunk_plan{640 * kib, with(8, mib)}.threads()), 5);
  EXPECT_EQ((chunk_plan{mib, with(8, mib)}.threads()), 8);
}

TEST(ring_plan, begins_and_ends_with_small_chunks_and_doubles_them_when_each_thread_had_one) {
  EXPECT_EQ(sizes(chunk_plan{10 * mib, with(2, mib)}),
            (std::vector<std::size_t>{128 * kib, 128 * kib, 256 * kib, 256 * kib, 512 * kib,
                                      512 * kib, 952 * kib, 952 * kib, 952 * kib, 952 * kib,
                                      952 * kib, 952 * kib, 944 * kib, 512 * kib, 512 * kib,
                                      256 * kib, 256 * kib, 128 * kib, 128 * kib}));
}

TEST(ring_plan, whose_chunks_are_small_does_not_vary_them) {
  EXPECT_EQ(sizes(chunk_plan{20000, with(2, 4096)}),
            (std::vector<std::size_t>{4096, 4096, 4096, 4096, 3616}));
}

TEST(ring_plan, shares_out_the_middle_evenly) {
  EXPECT_EQ(sizes(chunk_plan{36 * kib, with(1, 32 * kib)}),
            (std::vector<std::size_t>{20 * kib, 16 * kib}));
}

}  // namespace
}  // namespace pyxfer::tests
