#pragma once

#include "alarms.hpp"
#include "cuda/cleanup.hpp"
#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "hostrt/control.hpp"
#include "hostrt/memory.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace pyxfer::tests {

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A number that lengthens the stress tests: PYXFER_STRESS_S is how many seconds each takes.
inline double number_from(char const* variable, double otherwise) {
  char const* const given = std::getenv(variable);
  return given == nullptr ? otherwise : std::stod(given);
}

/// The rounds of a test in which threads meet at every step of each other. On a busy machine a
/// round may take time slices of other programs, so there are fewer of them.
class rounds {
 public:
  explicit rounds(int most) : most_{most} {}
  /// Whether one more begins.
  [[nodiscard]] bool another() {
    if (begun_ == most_ || now_s() > end_s_) { return false; }
    ++begun_;
    return true;
  }
  [[nodiscard]] int begun() const noexcept { return begun_; }

 private:
  int most_;
  int begun_{0};
  double end_s_{now_s() + limit_s() / 2.0};
};

inline std::string word_for(hostrt::allocation const& live) {
  return live.kind + " " + std::to_string(live.address);
}

/// The host runtime's allocations as text, which a failed comparison shows.
inline std::vector<std::string> live() {
  std::vector<std::string> words;
  for (auto const& each : hostrt::allocated()) { words.push_back(word_for(each)); }
  std::sort(words.begin(), words.end());
  return words;
}

template <typename Condition>
void await(Condition const& holds) {
  while (!holds()) { std::this_thread::yield(); }
}

inline long count_of(std::string const& call) {
  auto const made = hostrt::calls();
  auto const found = made.find(call);
  return found == made.end() ? 0 : found->second;
}

/// Where a test reads and writes memory of a device, which is protected at its own address.
inline unsigned char* inside(std::uintptr_t address) {
  return reinterpret_cast<unsigned char*>(
      hostrt::host_view(reinterpret_cast<void const*>(address)));
}

/// A test starts without orders, and must end without allocations and cleanup notes.
class engine_test : public ::testing::Test {
 protected:
  void SetUp() override {
    hostrt::reset();
    static_cast<void>(driver());
    before_ = live();
  }

  void TearDown() override {
    hostrt::reset();
    EXPECT_EQ(take_cleanup_failures(), std::vector<std::string>{});
    EXPECT_EQ(live(), before_);
  }

  /// The allocations of this test that were not released.
  [[nodiscard]] std::vector<std::string> made() const {
    auto const now = live();
    std::vector<std::string> added;
    std::set_difference(now.begin(), now.end(), before_.begin(), before_.end(),
                        std::back_inserter(added));
    return added;
  }

  /// Releases what was made since `kept` was. Owners have left it, so it is still valid.
  static void release_all_but(std::vector<std::string> const& kept) {
    for (auto const& left : hostrt::allocated()) {
      if (std::count(kept.begin(), kept.end(), word_for(left)) != 0) { continue; }
      auto* const handle = reinterpret_cast<void*>(left.address);
      if (left.kind == "stream") {
        EXPECT_EQ(cudaStreamDestroy(static_cast<cudaStream_t>(handle)), cudaSuccess);
      } else if (left.kind == "event") {
        EXPECT_EQ(driver().cuEventDestroy(static_cast<CUevent>(handle)), CUDA_SUCCESS);
      } else if (left.kind == "registered") {
        EXPECT_EQ(cudaHostUnregister(handle), cudaSuccess);
      } else {
        EXPECT_EQ(left.kind == "device" ? cudaFree(handle) : cudaFreeHost(handle), cudaSuccess);
      }
    }
  }

 private:
  std::vector<std::string> before_;
};

/// Calls that only explain an error, which their caller already has.
inline bool only_explains(std::string const& call) {
  static std::set<std::string> const such{"cudaGetLastError", "cudaGetErrorName",
                                          "cudaGetErrorString", "cuGetErrorName",
                                          "cuGetErrorString"};
  return such.count(call) != 0;
}

/// Runs `action` while one call fails. The failure must be thrown or noted, and nothing may stay
/// allocated.
inline void expect_failure_reported(std::function<void()> const& action, std::string const& call,
                                    int nth) {
  SCOPED_TRACE("call " + std::to_string(nth) + " of " + call + " fails");
  hostrt::reset();
  auto const before = live();
  hostrt::fail(call, nth, cudaErrorNotSupported);
  std::string report;
  try {
    action();
  } catch (cuda_error const& error) {
    report = error.what();
    EXPECT_EQ(error.where().rfind("csrc/", 0), 0U) << error.where();
  }
  for (auto const& note : take_cleanup_failures()) { report += "\n" + note; }
  auto const expected = call + " failed with ";
  EXPECT_EQ(report.find(expected) != std::string::npos, count_of(call) >= nth) << report;
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_EQ(live(), before);
}

/// The same for every call that `action` makes. Of a call that polls, only the first few fail.
inline void expect_every_failure_reported(std::function<void()> const& action) {
  constexpr long most_of_one = 40;
  constexpr long most_polls = 3;
  hostrt::reset();
  action();
  for (auto const& [call, count] : hostrt::calls()) {
    if (only_explains(call)) { continue; }
    auto const most = std::min(count, call == "cuEventQuery" ? most_polls : most_of_one);
    for (int nth = 1; nth <= most; ++nth) { expect_failure_reported(action, call, nth); }
  }
  hostrt::reset();
}

/// The text of the error of type `Error` that `action` throws.
template <typename Error, typename Action>
std::string text_of(Action const& action) {
  try {
    action();
  } catch (Error const& error) { return error.what(); }
  return "nothing was thrown";
}

}  // namespace pyxfer::tests
