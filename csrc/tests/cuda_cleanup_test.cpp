#include "cuda/cleanup.hpp"

#include "engine_support.hpp"

#include <stdexcept>

namespace pyxfer::tests {
namespace {

using cuda_cleanup = engine_test;

TEST_F(cuda_cleanup, keeps_notes_in_order_until_they_are_taken) {
  note_cleanup_failure("first");
  note_cleanup_failure("second");
  EXPECT_EQ(take_cleanup_failures(), (std::vector<std::string>{"first", "second"}));
  EXPECT_TRUE(take_cleanup_failures().empty());
}

TEST_F(cuda_cleanup, notes_what_a_release_throws) {
  release_noexcept([] { throw std::runtime_error("it would not go"); });
  EXPECT_EQ(take_cleanup_failures(), std::vector<std::string>{"it would not go"});
}

TEST_F(cuda_cleanup, says_nothing_about_a_release_that_worked) {
  bool done = false;
  release_noexcept([&done] { done = true; });
  EXPECT_TRUE(done);
  EXPECT_TRUE(take_cleanup_failures().empty());
}

}  // namespace
}  // namespace pyxfer::tests
