#include "blocks/list.hpp"

#include "blocks_support.hpp"

#include <stdexcept>
#include <string>

namespace pyxfer::tests {
namespace {

constexpr block_copy between{{4096, 10, 64}, {1 << 20, 1000, 64}, 64};

std::string refusal(index_list const& from, index_list const& to) {
  return text_of<std::invalid_argument>([&] { validate(between, list_of(from, to)); });
}

TEST(blocks_list, refuses_indices_outside_a_pool) {
  EXPECT_EQ(refusal({0, 10}, {0, 1}),
            "source_indices[1] is 10, and the pool has the blocks 0 to 9: give indices inside the "
            "pool");
  EXPECT_NE(refusal({0, -1}, {0, 1}).find("source_indices[1] is -1"), std::string::npos);
  EXPECT_NE(refusal({0, 1}, {0, 1000}).find("destination_indices[1] is 1000"), std::string::npos);
  EXPECT_EQ(refusal({0, 9, 9}, {999, 0, 1}), "nothing was thrown");
}

TEST(blocks_list, refuses_a_block_that_is_written_twice) {
  EXPECT_NE(refusal({1, 2, 3}, {7, 8, 7}).find("block 7 twice"), std::string::npos);
  auto to = random_indices(1000, 900, 1);
  index_list const from(to.size(), 3);
  EXPECT_EQ(refusal(from, to), "nothing was thrown");
  EXPECT_EQ(refusal(from, to), "nothing was thrown");  // the first one leaves no marks
  auto const kept = to;
  to[100] = to[800];
  EXPECT_NE(refusal(from, to).find("twice"), std::string::npos);
  EXPECT_EQ(refusal(from, kept), "nothing was thrown");
}

TEST(blocks_list, refuses_a_block_that_is_written_twice_in_a_pool_of_very_many) {
  auto const of = block_copy{{4096, 10, 1}, {1 << 20, std::size_t{1} << 40U, 1}, 1};
  auto const refused = [&of](index_list const& to) {
    return text_of<std::invalid_argument>([&] { validate(of, list_of({1, 2, 3}, to)); });
  };
  constexpr std::int64_t far = std::int64_t{1} << 39U;
  EXPECT_EQ(refused({far, 7, 8}), "nothing was thrown");
  EXPECT_NE(refused({far, 7, far}).find("twice"), std::string::npos);
}

TEST(blocks_list, refuses_pools_that_overlap_or_have_no_memory) {
  auto const refused = [](block_pool source, block_pool destination) {
    return text_of<std::invalid_argument>([&] { validate({source, destination, 64}); });
  };
  EXPECT_EQ(refused({4096, 2, 64}, {4096 + 128, 2, 64}), "nothing was thrown");
  EXPECT_NE(refused({4096, 2, 64}, {4096 + 127, 2, 64}).find("overlap"), std::string::npos);
  EXPECT_NE(refused({0, 2, 64}, {4096, 2, 64}).find("no memory"), std::string::npos);
  EXPECT_NE(refused({4096, 2, 63}, {1 << 20, 2, 64}).find("overlap"), std::string::npos);
  EXPECT_EQ(refused({0, 0, 64}, {4096, 2, 64}), "nothing was thrown");
}

TEST(blocks_list, merges_neighbours_on_both_sides) {
  index_list const from{3, 4, 5, 7, 8, 0};
  index_list const to{10, 11, 12, 13, 14, 16};
  auto const runs = runs_of(between, list_of(from, to));
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0].blocks, 3U);
  EXPECT_EQ(runs[1].from, 7U);
  EXPECT_EQ(runs[1].to, 13U);
  auto gaps = between;
  gaps.source.stride = 128;
  EXPECT_EQ(runs_of(gaps, list_of(from, to)).size(), 6U);
}

TEST(blocks_list, finds_equal_steps) {
  auto const steps = [](index_list const& from, index_list const& to) {
    return steps_of(list_of(from, to));
  };
  EXPECT_EQ(steps({1, 3, 5}, {0, 4, 8})->from, 2U);
  EXPECT_EQ(steps({1, 3, 5}, {0, 4, 8})->to, 4U);
  EXPECT_FALSE(steps({1, 3, 6}, {0, 4, 8}));
  EXPECT_FALSE(steps({5, 3, 1}, {0, 4, 8}));
  EXPECT_TRUE(steps({5}, {9}));
}

}  // namespace
}  // namespace pyxfer::tests
