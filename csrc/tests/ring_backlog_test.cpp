#include "ring/backlog.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace pyxfer::tests {
namespace {

TEST(ring_backlog, does_what_it_is_given_in_that_order_in_another_thread) {
  std::vector<std::size_t> done;
  std::vector<std::thread::id> where;
  {
    backlog made;
    for (std::size_t i = 0; i < 20; ++i) {
      made.add(backlog::task{[&done, &where, i] {
        done.push_back(i);
        where.push_back(std::this_thread::get_id());
        return staged{};
      }});
    }
  }
  ASSERT_EQ(done.size(), 20U);
  for (std::size_t i = 0; i < done.size(); ++i) {
    EXPECT_EQ(done[i], i);
    EXPECT_EQ(where[i], where[0]);
  }
  EXPECT_NE(where[0], std::this_thread::get_id());
}

TEST(ring_backlog, gives_back_what_came_of_it) {
  backlog made;
  backlog::task good{[] { return staged{0, 7, 7, 0, 0, 0}; }};
  backlog::task bad{[]() -> staged { throw std::runtime_error("no"); }};
  auto counted = good.get_future();
  auto thrown = bad.get_future();
  made.add(std::move(good));
  made.add(std::move(bad));
  EXPECT_EQ(counted.get().chunks, 7U);
  EXPECT_THROW(static_cast<void>(thrown.get()), std::runtime_error);
}

TEST(ring_backlog, ends_once) {
  backlog made;
  made.close();
  made.close();
}

}  // namespace
}  // namespace pyxfer::tests
