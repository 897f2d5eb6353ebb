#include "links/user_count.hpp"

#include <gtest/gtest.h>

#include <climits>

namespace pyxfer::tests {
namespace {

constexpr int any_number = INT_MAX - 1;

TEST(links_user_count, counts_the_users_of_an_object) {
  user_count state;
  {
    auto first = enter(state, "it", 0);
    EXPECT_THROW(state.close("it"), std::logic_error);
    EXPECT_THROW(static_cast<void>(enter(state, "it", 0)), std::logic_error);
    auto const moved = std::move(first);
    auto const second = enter(state, "it", any_number);
    EXPECT_THROW(static_cast<void>(enter(state, "it", 1)), std::logic_error);
  }
  EXPECT_FALSE(state.closed());
  EXPECT_TRUE(state.close("it"));
  EXPECT_FALSE(state.close("it"));
  EXPECT_THROW(static_cast<void>(enter(state, "it", any_number)), std::invalid_argument);
  EXPECT_TRUE(state.closed());  // the attempt has not opened it again
}

TEST(links_user_count, stays_closed_after_the_last_user_of_what_was_abandoned) {
  user_count state;
  {
    auto const last = enter(state, "it", 0);
    state.abandon();
  }
  EXPECT_TRUE(state.closed());
}

}  // namespace
}  // namespace pyxfer::tests
