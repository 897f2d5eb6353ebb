#include "copy/both.hpp"

#include "timed_support.hpp"

#include <memory>
#include <thread>

namespace pyxfer::tests {
namespace {

struct memories {
  explicit memories(memory_kind kind)
      : up{direction::h2d, 16 * kib, kind, 4}, down{direction::d2h, 16 * kib, kind, 4} {}
  [[nodiscard]] both_lanes lanes() const { return {up.along(), down.along()}; }
  lane_memory up;
  lane_memory down;
};

/// A way to time copies, and what it waits for if the first event is never passed; empty if it
/// waits without a limit.
struct way {
  std::string name;
  std::size_t streams;
  memory_kind kind;
  std::string awaited;
  std::function<void(bench&, memories const&)> time;
};

constexpr auto pinned = memory_kind::pinned;
constexpr auto pageable = memory_kind::pageable;
constexpr auto idle_event = "an event on an idle stream";

way gated(std::string name, issue_mode mode) {
  return {std::move(name), 3, pinned, "a copy", [mode](bench& used, memories const& memory) {
            static_cast<void>(time_gated(used, mode, memory.up.along(), {2, 1, 0}));
          }};
}

way on_stream(std::string name, issue_mode mode) {
  return {std::move(name), 3, pageable, idle_event, [mode](bench& used, memories const& memory) {
            static_cast<void>(time_on_stream(used, mode, memory.down.along(), 0));
          }};
}

std::vector<way> every_way() {
  return {
      gated("gated_async", issue_mode::async),
      gated("gated_split", issue_mode::split),
      gated("gated_batch", issue_mode::batch),
      on_stream("on_stream_async", issue_mode::async),
      on_stream("on_stream_split", issue_mode::split),
      on_stream("on_stream_batch", issue_mode::batch),
      {"drained", 1, pageable, "",
       [](bench& used, memories const& memory) {
         static_cast<void>(time_drained(used, memory.up.along(), 0));
       }},
      {"both_gated", 2, pinned, "the h2d side of a copy both ways",
       [](bench& used, memories const& memory) {
         static_cast<void>(time_both_gated(used, memory.lanes(), {2, 1, {1, 1}, 0}));
       }},
      {"both_issued", 2, pinned, idle_event,
       [](bench& used, memories const& memory) {
         static_cast<void>(time_both_issued(used, memory.lanes(), 2, 0));
       }},
      {"both_threads", 2, pageable, idle_event,
       [](bench& used, memories const& memory) {
         static_cast<void>(time_both_threads(used, memory.lanes(), 2, 0));
       }},
  };
}

class copy_trouble : public engine_test, public ::testing::WithParamInterface<way> {};

INSTANTIATE_TEST_SUITE_P(of, copy_trouble, ::testing::ValuesIn(every_way()),
                         [](auto const& of) { return of.param.name; });

TEST_P(copy_trouble, is_reported_and_leaves_no_stream_blocked) {
  memories const memory{GetParam().kind};
  expect_every_failure_reported([&] {
    bench used{0, GetParam().streams, patience{20}};
    try {
      GetParam().time(used, memory);
    } catch (cuda_error const&) {
      expect_idle(used);
      throw;
    }
  });
}

TEST_P(copy_trouble, of_a_device_that_stalls_ends_with_the_time_or_a_cancellation) {
  auto const& [name, streams, kind, awaited, time] = GetParam();
  if (awaited.empty()) { return; }
  memories const memory{kind};
  for (auto const seconds : {0.05, 1000.0}) {
    auto const cancelled = std::make_shared<std::atomic<bool>>(false);
    bench used{0, streams, patience{seconds, cancelled}};
    hostrt::stall("cuEventRecord", 1, 1e5);
    std::thread cancelling{[&cancelled, is_long = seconds > 1] {
      std::this_thread::sleep_for(std::chrono::milliseconds{30});
      *cancelled = is_long;
    }};
    std::string text;
    try {
      time(used, memory);
    } catch (timeout_error const& error) {
      text = error.what();
    } catch (cancelled_error const& error) { text = error.what(); }
    auto const expected = seconds > 1 ? "cancelled during " + awaited
                                      : "The device did not finish " + awaited + " within 0.05 s.";
    EXPECT_EQ(text.rfind(expected, 0), 0U) << text;
    cancelling.join();
    EXPECT_EQ(take_cleanup_failures().size(), 1U);  // the copies are still under way
    hostrt::release_stalls();
  }
}

}  // namespace
}  // namespace pyxfer::tests
