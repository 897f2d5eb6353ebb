#include "links/use.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace pyxfer::tests {
namespace {

TEST(links_use, counts_the_users_of_an_object) {
  use_count users;
  EXPECT_NO_THROW(users.require_none("it"));
  {
    in_use first{users};
    EXPECT_THROW(users.require_none("it"), std::logic_error);
    EXPECT_NO_THROW(users.require_no_other("it"));
    std::vector<in_use> moved;
    moved.push_back(std::move(first));
    EXPECT_NO_THROW(users.require_no_other("it"));
    moved.emplace_back(users);
    EXPECT_THROW(users.require_no_other("it"), std::logic_error);
  }
  EXPECT_NO_THROW(users.require_none("it"));
}

}  // namespace
}  // namespace pyxfer::tests
