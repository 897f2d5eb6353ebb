#include "trace/receiver.hpp"

#include <gtest/gtest.h>

#include <set>

namespace pyxfer::trace::tests {
namespace {

TEST(trace_buffers, are_reused) {
  buffer_pool pool;
  pool.prepare(1);
  auto* const first = pool.lend();
  pool.take_back(first);
  EXPECT_EQ(pool.lend(), first);
}

TEST(trace_buffers, are_allocated_on_demand_up_to_a_limit) {
  buffer_pool pool;
  pool.prepare(2);
  std::set<std::uint8_t*> lent;
  for (std::size_t i = 0; i < buffer_pool::most_buffers; ++i) { lent.insert(pool.lend()); }
  EXPECT_EQ(lent.size(), buffer_pool::most_buffers);
  EXPECT_EQ(lent.count(nullptr), 0U);
  EXPECT_EQ(pool.lend(), nullptr);
  pool.take_back(*lent.begin());
  EXPECT_EQ(pool.lend(), *lent.begin());
}

TEST(trace_buffers, are_aligned_for_any_record) {
  buffer_pool pool;
  pool.prepare(1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool.lend()) % 8, 0U);
}

TEST(trace_buffers, of_another_owner_are_not_taken_back) {
  buffer_pool pool;
  pool.prepare(1);
  std::uint8_t strange = 0;
  EXPECT_FALSE(pool.is_lent(&strange));
  pool.take_back(&strange);
  EXPECT_NE(pool.lend(), &strange);
}

TEST(trace_buffers, that_are_not_lent_can_be_freed) {
  buffer_pool pool;
  pool.prepare(3);
  auto* const lent = pool.lend();
  pool.shrink();
  EXPECT_TRUE(pool.is_lent(lent));
  pool.take_back(lent);
  EXPECT_EQ(pool.lend(), lent);
}

}  // namespace
}  // namespace pyxfer::trace::tests
