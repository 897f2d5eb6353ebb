#include "timed_support.hpp"

#include <memory>
#include <thread>

namespace pyxfer::tests {
namespace {

using copy_time_drained = engine_test;

TEST_F(copy_time_drained, is_the_modelled_time_by_both_clocks) {
  hostrt::model_link({rate, 0}, {rate, 0});
  bench used{0, 1, patience{60}};
  for (auto const way : {direction::h2d, direction::d2h}) {
    for (auto const kind : {memory_kind::pageable, memory_kind::pinned}) {
      lane_memory const memory{way, size, kind, 2};
      auto const found = time_drained(used, memory.along(), 1);
      EXPECT_GE(found.elapsed_s, crossing_s * rounding);
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
  EXPECT_GE(found.elapsed_s, 0.05 * rounding);
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

TEST_F(copy_time_drained, reports_every_failure_and_leaves_no_stream_blocked) {
  lane_memory const memory{direction::h2d, 16 * kib, memory_kind::pageable};
  expect_every_failure_reported([&] {
    run_on_bench(1, [&](bench& used) { static_cast<void>(time_drained(used, memory.along(), 0)); });
  });
}

}  // namespace
}  // namespace pyxfer::tests
