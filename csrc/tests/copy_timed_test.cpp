#include "timed_support.hpp"

#include <memory>
#include <thread>

namespace pyxfer::tests {
namespace {

using copy_time_gated = engine_test;

TEST_F(copy_time_gated, is_the_modelled_time_of_one_transfer) {
  hostrt::model_link({rate, 1e-3}, {rate / 2, 0});
  bench used{0, 1, patience{60}};
  lane_memory const up{direction::h2d, size};
  lane_memory const down{direction::d2h, size};
  auto const sent = time_behind_gate(used, issue_mode::async, up.along(), {3, 1, 0});
  expect_exactly(sent.elapsed_s, crossing_s + 1e-3);
  auto const received = time_behind_gate(used, issue_mode::async, down.along(), {2, 1, 0});
  expect_exactly(received.elapsed_s, 2 * crossing_s);
  EXPECT_EQ(sent.copies, 3U);
}

TEST_F(copy_time_gated, is_the_same_for_every_mode) {
  hostrt::model_link({rate, 0}, {0, 0});
  bench used{0, 4, patience{60}};
  lane_memory const memory{direction::h2d, size, memory_kind::pinned, 2};
  for (auto const mode : every_mode) {
    expect_exactly(time_behind_gate(used, mode, memory.along(), {2, 1, 0}).elapsed_s, crossing_s);
  }
}

TEST_F(copy_time_gated, does_not_include_the_warm_up) {
  hostrt::model_link({rate, 0}, {0, 0});
  for (auto const* const call : {"cudaMemcpyAsync", "cudaMemcpyBatchAsync"}) {
    auto const mode =
        std::string{call} == "cudaMemcpyAsync" ? issue_mode::split : issue_mode::batch;
    bench used{0, 2, patience{60}};
    lane_memory const memory{direction::h2d, size};
    hostrt::stall(call, 1, 0.05);
    expect_exactly(time_behind_gate(used, mode, memory.along(), {1, 1, 0}).elapsed_s, crossing_s);
  }
}

TEST_F(copy_time_gated, dispatches_without_waiting_for_the_link) {
  bench used{0, 1, patience{60}};
  lane_memory const memory{direction::h2d, size};
  // It is valid: a call that waits for its copy would wait for the gate.
  auto const found = time_behind_gate(used, issue_mode::async, memory.along(), {2, 0, 0});
  EXPECT_GT(found.dispatch_s, 0);
  EXPECT_EQ(found.wall_s, std::nullopt);
}

TEST_F(copy_time_gated, uses_the_slots_in_turn) {
  bench used{0, 3, patience{60}};
  for (auto const mode : every_mode) {
    lane_memory const memory{direction::h2d, 50001, memory_kind::registered, 6};
    static_cast<void>(time_gated(used, mode, memory.along(), {2, 1, 4}));
    EXPECT_TRUE(memory.has_arrived(4) && memory.has_arrived(5) && memory.has_arrived(0));
    EXPECT_TRUE(memory.is_untouched(1) && memory.is_untouched(2) && memory.is_untouched(3));
  }
}

TEST_F(copy_time_gated, ends_and_is_invalid_with_pageable_memory) {
  bench used{0, 1, patience{60}};
  lane_memory const memory{direction::h2d, 2 * mib, memory_kind::pageable};
  auto const found = time_gated(used, issue_mode::async, memory.along(), {1, 0, 0});
  EXPECT_EQ(found.invalid, "the gate timed out before everything was queued");
  EXPECT_TRUE(memory.has_arrived(0));
}

TEST_F(copy_time_gated, may_be_used_again_after_a_failure) {
  bench used{0, 2, patience{60}};
  lane_memory const memory{direction::d2h, 16 * kib};
  hostrt::fail("cudaMemcpyAsync", 2, cudaErrorNotSupported);
  EXPECT_THROW(static_cast<void>(time_gated(used, issue_mode::split, memory.along(), {2, 1, 0})),
               cuda_error);
  auto const found = time_gated(used, issue_mode::split, memory.along(), {2, 1, 0});
  EXPECT_EQ(found.invalid, "");
  EXPECT_GT(found.elapsed_s, 0);
}

TEST_F(copy_time_gated, reports_a_lost_device) {
  {
    lane_memory const memory{direction::h2d, 16 * kib};
    bench used{0, 2, patience{60}};
    hostrt::fail_sticky("cudaMemcpyAsync", 2, cudaErrorIllegalAddress);
    EXPECT_THROW(static_cast<void>(time_gated(used, issue_mode::split, memory.along(), {2, 1, 0})),
                 device_lost_error);
  }
  EXPECT_FALSE(take_cleanup_failures().empty());
  EXPECT_TRUE(made().empty());
}

using copy_time_on_stream = engine_test;

TEST_F(copy_time_on_stream, is_the_modelled_time_by_both_clocks) {
  hostrt::model_link({rate, 0}, {rate, 0});
  bench used{0, 2, patience{60}};
  for (auto const way : {direction::h2d, direction::d2h}) {
    for (auto const kind : {memory_kind::pageable, memory_kind::pinned}) {
      lane_memory const memory{way, size, kind};
      auto const found = time_on_stream(used, issue_mode::async, memory.along(), 0);
      EXPECT_GE(found.elapsed_s, crossing_s * (1 - rounding));
      EXPECT_GE(found.wall_s.value_or(0), crossing_s);
      EXPECT_GE(found.wall_s.value_or(0), found.dispatch_s);
      EXPECT_EQ(found.copies, 1U);
      EXPECT_EQ(found.invalid, "");
      EXPECT_TRUE(memory.has_arrived(0));
    }
  }
}

TEST_F(copy_time_on_stream, dispatches_a_pageable_copy_until_it_ends) {
  hostrt::model_link({size / 0.1, 0}, {0, 0});
  bench used{0, 1, patience{60}};
  lane_memory const pageable{direction::h2d, size, memory_kind::pageable};
  lane_memory const pinned{direction::h2d, size};
  EXPECT_GE(time_on_stream(used, issue_mode::async, pageable.along(), 0).dispatch_s, 0.1);
  auto const recorded = count_of("cuEventRecord");
  hostrt::stall("cudaMemcpyAsync", 1, 1000);
  std::thread releasing{[recorded] {  // after the second event, which is recorded after the call
    while (count_of("cuEventRecord") < recorded + 2) { std::this_thread::yield(); }
    hostrt::release_stalls();
  }};
  static_cast<void>(time_on_stream(used, issue_mode::async, pinned.along(), 0));
  releasing.join();
}

TEST_F(copy_time_on_stream, contains_the_calls_that_a_gate_hides) {
  constexpr std::size_t count = 8;
  constexpr double call_s = 2e-3;
  hostrt::model_link({1e9, 0}, {0, 0});
  hostrt::model_issue({call_s, call_s});
  bench used{0, 2, patience{60}};
  lane_memory const memory{direction::h2d, 16 * kib, memory_kind::pinned, count};
  for (auto const mode : every_mode) {
    auto const behind = time_behind_gate(used, mode, memory.along(), {count, 0, 0});
    EXPECT_LT(behind.elapsed_s, call_s);  // by the modelled clock
    EXPECT_GE(behind.dispatch_s, call_s);
    auto const found = time_on_stream(used, mode, memory.along(), 0, count);
    EXPECT_GE(found.wall_s.value_or(0), call_s);
    EXPECT_GE(found.wall_s.value_or(0), found.dispatch_s);
    EXPECT_EQ(found.copies, count);
    for (std::size_t turn = 0; turn < count; ++turn) { EXPECT_TRUE(memory.has_arrived(turn)); }
  }
}

using copy_time_drained = engine_test;

TEST_F(copy_time_drained, is_the_modelled_time_by_both_clocks) {
  hostrt::model_link({rate, 0}, {rate, 0});
  bench used{0, 1, patience{60}};
  for (auto const way : {direction::h2d, direction::d2h}) {
    for (auto const kind : {memory_kind::pageable, memory_kind::pinned}) {
      lane_memory const memory{way, size, kind, 2};
      auto const found = time_drained(used, memory.along(), 1);
      EXPECT_GE(found.elapsed_s, crossing_s * (1 - rounding));
      EXPECT_GE(found.wall_s.value_or(0), crossing_s);
      EXPECT_EQ(found.invalid, "");  // so the clocks agree
      EXPECT_TRUE(memory.has_arrived(1) && memory.is_untouched(0));
    }
  }
}

TEST_F(copy_time_drained, includes_the_part_of_a_copy_after_its_return) {
  hostrt::model_link({32 * kib / 0.05, 0}, {0, 0});
  bench used{0, 1, patience{60}};
  lane_memory const staged{direction::h2d, 32 * kib, memory_kind::pageable};
  auto const found = time_drained(used, staged.along(), 0);
  EXPECT_LE(found.dispatch_s, found.wall_s.value_or(0));
  EXPECT_GE(found.elapsed_s, 0.05 * (1 - rounding));
  EXPECT_GE(found.wall_s.value_or(0), 0.05);
}

TEST_F(copy_time_drained, is_invalid_if_the_first_event_was_stamped_late) {
  bench used{0, 1, patience{60}};
  lane_memory const memory{direction::h2d, kib};
  hostrt::stall("cuEventRecord", 1, 0.05);
  EXPECT_EQ(time_drained(used, memory.along(), 0).invalid,
            "the device stamped the first event late");
}

TEST_F(copy_time_drained, does_not_include_earlier_work) {
  hostrt::model_link({size / 0.2, 0}, {0, 0});
  stream const theirs{0};
  lane_memory const slow{direction::h2d, size};
  lane_memory const quick{direction::d2h, kib};
  bench used{0, 1, patience{60}};
  event ended{0};
  copy_async(slow.along(), 0, theirs.view());
  ended.record(theirs.view());
  static_cast<void>(time_drained(used, quick.along(), 0));
  EXPECT_TRUE(ended.passed());
  EXPECT_GE(used.mark(bench::start_mark).seconds_since(ended), 0);
}

}  // namespace
}  // namespace pyxfer::tests
