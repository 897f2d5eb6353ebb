#include "links/use.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <climits>
#include <thread>
#include <vector>

namespace pyxfer::tests {
namespace {

constexpr int any_number = INT_MAX - 1;

TEST(links_use, counts_the_users_of_an_object) {
  use_state state;
  {
    in_use first{state, "it", 0};
    EXPECT_THROW(state.close("it"), std::logic_error);
    EXPECT_THROW((in_use{state, "it", 0}), std::logic_error);
    std::vector<in_use> moved;
    moved.push_back(std::move(first));
    moved.emplace_back(state, "it", any_number);
    EXPECT_THROW((in_use{state, "it", 1}), std::logic_error);
  }
  EXPECT_FALSE(state.closed());
  EXPECT_TRUE(state.close("it"));
  EXPECT_FALSE(state.close("it"));
  EXPECT_TRUE(state.closed());
  EXPECT_THROW((in_use{state, "it", any_number}), std::invalid_argument);
  EXPECT_TRUE(state.closed());  // the attempt has not opened it again
}

TEST(links_use, stays_closed_after_the_last_user_of_what_was_abandoned) {
  use_state state;
  {
    in_use const last{state, "it", 0};
    state.abandon();
  }
  EXPECT_TRUE(state.closed());
}

TEST(links_use, is_never_used_and_closed) {
  for (int round = 0; round < 500; ++round) {
    use_state state;
    std::atomic<bool> begun{false};
    std::atomic<bool> used{false};
    std::thread closer{[&] {
      while (!begun) { std::this_thread::yield(); }
      try {
        EXPECT_TRUE(state.close("it"));
        EXPECT_FALSE(used);
      } catch (std::logic_error const&) {}
    }};
    begun = true;
    try {
      in_use const user{state, "it", 0};
      used = true;
      EXPECT_FALSE(state.closed());
      used = false;
    } catch (std::invalid_argument const&) { EXPECT_TRUE(state.closed()); }
    closer.join();
  }
}

}  // namespace
}  // namespace pyxfer::tests
