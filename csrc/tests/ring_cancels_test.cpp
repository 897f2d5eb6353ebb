#include "ring/cancels.hpp"

#include <gtest/gtest.h>

namespace pyxfer::tests {
namespace {

TEST(ring_cancels, stop_what_is_under_way) {
  cancels made;
  auto const before = made.so_far();
  made.begin(before);
  EXPECT_FALSE(made.stopped());
  made.cancel();
  EXPECT_TRUE(made.stopped());
  EXPECT_TRUE(made.happened_since(before));
}

TEST(ring_cancels, stop_what_waits_for_its_turn) {
  cancels made;
  auto const before = made.so_far();
  made.cancel();
  made.begin(before);
  EXPECT_TRUE(made.stopped());
}

TEST(ring_cancels, leave_alone_what_comes_later) {
  cancels made;
  made.cancel();
  auto const before = made.so_far();
  made.begin(before);
  EXPECT_FALSE(made.stopped());
  EXPECT_FALSE(made.happened_since(before));
}

}  // namespace
}  // namespace pyxfer::tests
