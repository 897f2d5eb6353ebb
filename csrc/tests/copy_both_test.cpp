#include "copy/both.hpp"

#include "copy/gate.hpp"
#include "fork_support.hpp"
#include "timed_support.hpp"

#include <memory>
#include <thread>

namespace pyxfer::tests {
namespace {

constexpr std::size_t h2d = 0;
constexpr std::size_t d2h = 1;

/// The memory of both sides.
struct both_memories {
  explicit both_memories(memory_kind kind, std::size_t slots = 1)
      : both_memories{kind, kind, slots} {}
  both_memories(memory_kind up_kind, memory_kind down_kind, std::size_t slots = 1)
      : up{direction::h2d, size, up_kind, slots}, down{direction::d2h, size, down_kind, slots} {}
  [[nodiscard]] both_lanes lanes() const { return {up.along(), down.along()}; }
  lane_memory up;
  lane_memory down;
};

/// Expects that both sides are valid and take exactly the modelled time by their streams' clocks.
void expect_both(both_samples const& found, double h2d_s, double d2h_s) {
  EXPECT_EQ(found[h2d].invalid, "");
  EXPECT_EQ(found[d2h].invalid, "");
  expect_exactly(found[h2d].elapsed_s, h2d_s);
  expect_exactly(found[d2h].elapsed_s, d2h_s);
}

/// Expects that both sides take at least the modelled time, and are valid in one of several
/// attempts: another program may delay one side until the other has given up waiting.
template <typename Try>
void expect_modelled(double h2d_s, double d2h_s, Try const& attempt) {
  both_samples found;
  for (int i = 0; i < 20; ++i) {
    found = attempt();
    EXPECT_GE(found[h2d].elapsed_s, h2d_s * (1 - rounding));
    EXPECT_GE(found[d2h].elapsed_s, d2h_s * (1 - rounding));
    if (found[h2d].invalid.empty() && found[d2h].invalid.empty()) { return; }
  }
  ADD_FAILURE() << "h2d: " << found[h2d].invalid << ", d2h: " << found[d2h].invalid;
}

using copy_both_gated = engine_test;

TEST_F(copy_both_gated, measures_each_side_while_the_other_runs) {
  hostrt::model_link({rate, 0}, {rate, 0});
  bench used{0, 2, patience{60}};
  both_memories const memory{memory_kind::pinned, 4};
  expect_both(time_both_gated(used, memory.lanes(), {4, 2, {3, 3}, 0}), crossing_s, crossing_s);
}

TEST_F(copy_both_gated, dispatches_without_waiting_for_the_link) {
  hostrt::model_link({rate / 20, 0}, {rate / 20, 0});
  bench used{0, 2, patience{60}};
  both_memories const memory{memory_kind::pinned};
  for (auto const& side : time_both_gated(used, memory.lanes(), {2, 0, {1, 1}, 0})) {
    EXPECT_EQ(side.copies, 2U);
    EXPECT_EQ(side.wall_s, std::nullopt);
    EXPECT_GT(side.dispatch_s, 0);
    EXPECT_EQ(side.invalid, "");  // a call that waits for its copy would wait for the gate
  }
}

TEST_F(copy_both_gated, moves_the_bytes_of_both_sides) {
  bench used{0, 2, patience{60}};
  both_memories const memory{memory_kind::pinned, 8};
  static_cast<void>(time_both_gated(used, memory.lanes(), {2, 1, {1, 2}, 6}));
  for (std::size_t const turn : {6U, 7U, 0U, 1U}) { EXPECT_TRUE(memory.up.has_arrived(turn)); }
  for (std::size_t const turn : {6U, 7U, 0U, 1U, 2U}) {
    EXPECT_TRUE(memory.down.has_arrived(turn));
  }
  EXPECT_TRUE(memory.up.is_untouched(2) && memory.down.is_untouched(3));
}

TEST_F(copy_both_gated, is_invalid_if_the_other_side_ended_earlier) {
  hostrt::model_link({rate, 0}, {rate / 50, 0});
  bench used{0, 2, patience{60}};
  both_memories const memory{memory_kind::pinned};
  auto const found = time_both_gated(used, memory.lanes(), {1, 1, {1, 1}, 0});
  EXPECT_EQ(found[h2d].invalid, "");
  EXPECT_EQ(found[d2h].invalid, "the other direction ended earlier");
}

TEST_F(copy_both_gated, is_valid_on_both_sides_if_the_faster_has_a_long_tail) {
  hostrt::model_link({rate, 0}, {rate / 4, 0});
  bench used{0, 2, patience{60}};
  both_memories const memory{memory_kind::pinned};
  expect_both(time_both_gated(used, memory.lanes(), {1, 1, {10, 1}, 0}), crossing_s,
              4 * crossing_s);
}

TEST_F(copy_both_gated, is_invalid_if_the_other_side_began_later) {
  hostrt::model_link({rate, 0}, {rate, 0});
  bench used{0, 2, patience{60}};
  both_memories const memory{memory_kind::pinned};
  both_plan const plan{1, 1, {1, 1}, 0};
  auto const before = count_of("cuEventRecord");
  static_cast<void>(time_both_gated(used, memory.lanes(), plan));
  // The d2h side is queued last. The first of its four events shows when it began.
  hostrt::stall("cuEventRecord", static_cast<int>(count_of("cuEventRecord") - before) - 3, 0.2);
  auto const found = time_both_gated(used, memory.lanes(), plan);
  EXPECT_EQ(found[h2d].invalid, "the other direction began later");
  EXPECT_EQ(found[d2h].invalid, "the other direction ended earlier");
}

TEST_F(copy_both_gated, ends_and_is_invalid_with_pageable_memory) {
  bench used{0, 2, patience{60}};
  both_memories const memory{memory_kind::pageable};
  auto const found = time_both_gated(used, memory.lanes(), {1, 0, {0, 0}, 0});
  for (auto const& side : found) {
    EXPECT_EQ(side.invalid, "the gate timed out before everything was queued");
  }
}

/// The gate is on the stream of the uploads. A download to pageable memory returns when it has
/// ended: after the gate's timeout, or at once if it did not wait for the gate.
TEST_F(copy_both_gated, holds_the_downloads_too_until_everything_is_queued) {
  bench used{0, 2, patience{60}};
  both_memories const memory{memory_kind::pinned, memory_kind::pageable};
  for (auto const& side : time_both_gated(used, memory.lanes(), {1, 0, {0, 0}, 0})) {
    EXPECT_EQ(side.invalid, "the gate timed out before everything was queued");
  }
}

using copy_both_issued = engine_test;

TEST_F(copy_both_issued, ends_with_the_later_side_and_contains_the_calls) {
  constexpr std::size_t count = 4;
  hostrt::model_link({rate, 0}, {rate / 2, 0});
  hostrt::model_issue({crossing_s, 0});
  bench used{0, 2, patience{60}};
  both_memories const memory{memory_kind::pinned, count};
  auto const found = time_both_issued(used, memory.lanes(), count, 0);
  // The calls take two crossings a pair of copies, as the slower side does.
  EXPECT_GE(found.wall_s.value_or(0), 2 * crossing_s + crossing_s / count);
  EXPECT_GE(found.dispatch_s, 2 * crossing_s);
  EXPECT_EQ(found.copies, count);
  for (std::size_t turn = 0; turn < count; ++turn) {
    EXPECT_TRUE(memory.up.has_arrived(turn) && memory.down.has_arrived(turn));
  }
}

using copy_both_threads = engine_test;

TEST_F(copy_both_threads, measures_each_side_while_the_other_runs) {
  hostrt::model_link({rate, 0}, {rate, 0});
  bench used{0, 2, patience{60}};
  both_memories const memory{memory_kind::pageable, 4};
  expect_modelled(crossing_s, crossing_s,
                  [&] { return time_both_threads(used, memory.lanes(), 4, 0); });
  for (std::size_t turn = 0; turn < 4; ++turn) {
    EXPECT_TRUE(memory.up.has_arrived(turn) && memory.down.has_arrived(turn));
  }
}

TEST_F(copy_both_threads, waits_for_a_slower_side) {
  hostrt::model_link({rate, 0}, {rate / 50, 0});
  bench used{0, 2, patience{60}};
  both_memories const memory{memory_kind::pageable};
  expect_modelled(crossing_s, 50 * crossing_s,
                  [&] { return time_both_threads(used, memory.lanes(), 1, 0); });
}

TEST_F(copy_both_threads, is_invalid_if_the_other_side_gave_up_waiting) {
  constexpr long most_copies = 64;  // of a side, until it gives up
  hostrt::model_link({10 * rate, 0}, {rate / 50, 0});
  bench used{0, 2, patience{60}};
  both_memories const memory{memory_kind::pageable};
  gate held{used.on(1), 60};
  std::thread opening{[&held, before = count_of("cudaMemcpyAsync")] {
    while (count_of("cudaMemcpyAsync") < before + most_copies) { std::this_thread::yield(); }
    held.open();
  }};
  auto const found = time_both_threads(used, memory.lanes(), 1, 0);
  opening.join();
  EXPECT_EQ(found[h2d].invalid, "");
  EXPECT_EQ(found[d2h].invalid, "the other direction ended earlier");
}

TEST_F(copy_both_threads, ends_with_the_error_of_the_side_that_fails) {
  hostrt::model_link({rate, 0}, {rate, 0});
  bench used{0, 2, patience{60}};
  both_memories const memory{memory_kind::pageable};
  hostrt::fail("cudaMemcpyAsync", 5, cudaErrorNotSupported);
  EXPECT_THROW(static_cast<void>(time_both_threads(used, memory.lanes(), 8, 0)), cuda_error);
  expect_idle(used);
}

TEST_F(copy_both_threads, ends_when_cancelled_in_the_middle_of_a_window) {
  hostrt::model_link({rate, 0}, {rate, 0});
  auto const cancelled = std::make_shared<std::atomic<bool>>(false);
  bench used{0, 2, patience{60, cancelled}};
  both_memories const memory{memory_kind::pageable};
  static_cast<void>(time_both_threads(used, memory.lanes(), 1, 0));
  std::thread cancelling{[&cancelled] {
    std::this_thread::sleep_for(std::chrono::milliseconds{30});
    *cancelled = true;
  }};
  EXPECT_EQ(text_of<cancelled_error>(
                [&] { static_cast<void>(time_both_threads(used, memory.lanes(), 10000, 0)); }),
            "cancelled during one side of a copy both ways");
  cancelling.join();
  expect_idle(used);
}

TEST_F(copy_both_threads, in_a_forked_child_refuses_and_leaves_no_note) {
  both_memories const memory{memory_kind::pageable};
  bench used{0, 2, patience{1}};
  auto const text = in_forked_child([&] {
    auto found = text_of<forked_error>(
        [&] { static_cast<void>(time_both_threads(used, memory.lanes(), 1, 0)); });
    for (auto const& note : take_cleanup_failures()) { found += "\nnoted: " + note; }
    return found;
  });
  EXPECT_EQ(text.rfind("This process was forked after", 0), 0U) << text;
  EXPECT_EQ(text.find("noted"), std::string::npos) << text;
}

}  // namespace
}  // namespace pyxfer::tests
