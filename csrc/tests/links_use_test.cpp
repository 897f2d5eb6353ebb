#include "links/use.hpp"

#include <gtest/gtest.h>

#include <climits>

namespace pyxfer::tests {
namespace {

constexpr int any_number = INT_MAX - 1;

TEST(links_use, counts_the_users_of_an_object) {
  use_state state;
  {
    auto first = use(state, "it", 0);
    EXPECT_THROW(state.close("it"), std::logic_error);
    EXPECT_THROW(static_cast<void>(use(state, "it", 0)), std::logic_error);
    auto const moved = std::move(first);
    auto const second = use(state, "it", any_number);
    EXPECT_THROW(static_cast<void>(use(state, "it", 1)), std::logic_error);
  }
  EXPECT_FALSE(state.closed());
  EXPECT_TRUE(state.close("it"));
  EXPECT_FALSE(state.close("it"));
  EXPECT_THROW(static_cast<void>(use(state, "it", any_number)), std::invalid_argument);
  EXPECT_TRUE(state.closed());  // the attempt has not opened it again
}

TEST(links_use, stays_closed_after_the_last_user_of_what_was_abandoned) {
  use_state state;
  {
    auto const last = use(state, "it", 0);
    state.abandon();
  }
  EXPECT_TRUE(state.closed());
}

}  // namespace
}  // namespace pyxfer::tests
