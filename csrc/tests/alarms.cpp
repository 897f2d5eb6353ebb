#include "alarms.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

namespace pyxfer::tests {
namespace {

void set_alarm() { ::alarm(limit_s()); }

void end_with_parent() { static_cast<void>(::prctl(PR_SET_PDEATHSIG, SIGKILL)); }

/// A child inherits no alarm. A lock that another thread of the parent held at the fork stays
/// locked in the child, also those of AddressSanitizer's allocator, which spins on them without
/// end.
void watch_child() {
  set_alarm();
  end_with_parent();
}

class alarms : public ::testing::EmptyTestEventListener {
  // Before every test, its fixture, and what follows the last one.
  void OnTestSuiteStart(::testing::TestSuite const& /*suite*/) override { set_alarm(); }
  void OnTestStart(::testing::TestInfo const& /*test*/) override { set_alarm(); }
  void OnTestEnd(::testing::TestInfo const& /*test*/) override { set_alarm(); }
};

/// Before main(). The child of a "threadsafe" death test is this program again, without a fork().
[[gnu::constructor]] void watch(int count, char** words) {
  static_cast<void>(limit_s());  // read before any fork
  set_alarm();
  static_cast<void>(::pthread_atfork(nullptr, nullptr, watch_child));
  ::testing::UnitTest::GetInstance()->listeners().Append(new alarms);
  for (auto** word = words; word != words + count; ++word) {
    if (std::string_view{*word}.rfind("--gtest_internal_run", 0) == 0) { end_with_parent(); }
  }
}

}  // namespace

unsigned int limit_s() {
  static auto const limit = [] {
    auto const* const given = std::getenv("PYXFER_TEST_LIMIT_S");
    return given == nullptr ? 120U : static_cast<unsigned int>(std::stoul(given));
  }();
  return limit;
}

}  // namespace pyxfer::tests
