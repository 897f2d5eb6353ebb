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

TEST(alarms, are_set_in_forked_children_which_end_with_their_parent) {
  EXPECT_EQ(in_forked_child([] {
              int signal = 0;
              ::prctl(PR_GET_PDEATHSIG, &signal);
              return std::string{has_alarm() && signal == SIGKILL ? "both" : "not both"};
            }),
            "both");
}

void exit_with_alarm() { ::_exit(has_alarm() ? 0 : 1); }

TEST(alarms, are_set_in_death_tests) {
  EXPECT_EXIT(exit_with_alarm(), ::testing::ExitedWithCode(0), "");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_alarm(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pyxfer::tests
