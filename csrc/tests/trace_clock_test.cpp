#include "trace/gathering.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace pyxfer::trace::tests {
namespace {

constexpr std::int64_t second = 1'000'000'000;

std::int64_t steady_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds{1};
}

/// A comparison in which the host's clock shows `host`, and the other clock is ahead of it by `by`.
clock_comparison ahead(std::int64_t host, std::int64_t by) { return {host, host + by, 0}; }

TEST(trace_clock, is_compared_within_the_reported_error) {
  constexpr std::int64_t by = 7 * second;
  auto const found = compare_clocks([] { return steady_ns() + by; });
  EXPECT_LE(std::abs(found.offset_ns() + by), found.error_ns);
}

TEST(trace_clock, is_compared_by_the_tightest_reading) {
  int readings = 0;
  std::int64_t before = 0;  // the readings of the host's clock around the fifth are between these
  std::int64_t after = 0;
  auto const found = compare_clocks([&] {
    auto const now = steady_ns();
    if (++readings == 6) { after = now; }
    if (readings != 5) { std::this_thread::sleep_for(std::chrono::milliseconds{2}); }
    if (readings == 4) { before = steady_ns(); }
    return now;
  });
  EXPECT_LE(found.error_ns, (after - before + 1) / 2);
}

TEST(trace_clock, with_a_constant_offset_is_only_moved) {
  auto const from = ahead(10 * second, 500);
  auto const to = ahead(20 * second, 500);
  EXPECT_EQ(host_time(15 * second + 500, from, to), 15 * second);
}

TEST(trace_clock, that_drifts_is_interpolated) {
  auto const from = ahead(10 * second, 0);
  auto const to = ahead(20 * second, 1000);
  EXPECT_EQ(host_time(15 * second + 500, from, to), 15 * second);
  EXPECT_EQ(host_time(12 * second + 200, from, to), 12 * second);
}

TEST(trace_clock, outside_the_comparisons_uses_the_nearer_one) {
  auto const from = ahead(10 * second, 100);
  auto const to = ahead(20 * second, 900);
  EXPECT_EQ(host_time(9 * second + 100, from, to), 9 * second);
  EXPECT_EQ(host_time(21 * second + 900, from, to), 21 * second);
}

TEST(trace_clock, that_was_set_back_uses_the_offset_that_fits) {
  auto const from = ahead(10 * second, 100 * second);
  auto const to = ahead(12 * second, 0);
  EXPECT_EQ(host_time(110 * second + 5, from, to), 10 * second + 5);
  EXPECT_EQ(host_time(12 * second - 5, from, to), 12 * second - 5);
}

TEST(trace_clock, that_was_set_forward_uses_the_offset_that_fits) {
  auto const from = ahead(10 * second, 0);
  auto const to = ahead(12 * second, 100 * second);
  EXPECT_EQ(host_time(10 * second + 5, from, to), 10 * second + 5);
  EXPECT_EQ(host_time(112 * second - 5, from, to), 12 * second - 5);
}

TEST(trace_clock, was_not_set_if_it_moved_by_less_than_the_error) {
  clock_comparison const from{1000, 1000, 30};
  clock_comparison const to{1100, 1120, 30};
  EXPECT_EQ(host_time(1060, from, to), 1050);
}

TEST(trace_clock, leaves_an_unknown_time_at_zero) {
  EXPECT_EQ(host_time(0, ahead(10 * second, 100), ahead(20 * second, 900)), 0);
}

}  // namespace
}  // namespace pyxfer::trace::tests
