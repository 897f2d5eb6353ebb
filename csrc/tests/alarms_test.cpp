#include "alarms.hpp"

#include "fork_support.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace pyxfer::tests {
namespace {

/// Whether an alarm is set, which it stays.
bool has_alarm() {
  auto const left = ::alarm(limit_s());
  return left > 0 && left <= limit_s();
}

TEST(alarms, are_set_in_tests_without_a_fixture) { EXPECT_TRUE(has_alarm()); }

/// Whether it has an alarm, and ends with its parent.
bool is_watched() {
  int signal = 0;
  ::prctl(PR_GET_PDEATHSIG, &signal);
  return has_alarm() && signal == SIGKILL;
}

TEST(alarms, are_set_in_forked_children_which_end_with_their_parent) {
  EXPECT_EQ(in_forked_child([] { return std::string{is_watched() ? "watched" : "left alone"}; }),
            "watched");
}

TEST(alarms, are_set_in_death_tests_which_end_with_their_parent) {
  auto const exit_if_watched = [] { ::_exit(is_watched() ? 0 : 1); };
  EXPECT_EXIT(exit_if_watched(), ::testing::ExitedWithCode(0), "");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_if_watched(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pyxfer::tests
