#include "links/start_together.hpp"

#include "cuda/device.hpp"
#include "links/flow_runner.hpp"
#include "links_support.hpp"

#include <atomic>
#include <chrono>
#include <deque>
#include <stdexcept>
#include <thread>

namespace pyxfer::tests {
namespace {

/// The parameter is whether kernels are the gate.
class links_start_together : public links_test, public ::testing::WithParamInterface<bool> {};

/// Two flows on two devices. Whatever happens, their streams are not held at the end.
struct two_flows {
  ~two_flows() {
    for (auto* const each : flows) {
      EXPECT_EQ(cudaStreamSynchronize(each->on().handle()), cudaSuccess);
    }
  }
  link_ends ends0{0};
  link_ends ends1{1};
  flow first{ends0.upload(), &ends0.with};
  flow second{ends1.upload(), &ends1.with};
  std::vector<flow*> flows{&first, &second};
  start_together start{flows, links_start_together::GetParam(), 60};
};

INSTANTIATE_TEST_SUITE_P(by_kernels_or_a_function, links_start_together, ::testing::Bool());

TEST_P(links_start_together, lets_no_thread_continue_before_all_wait) {
  two_flows made;
  auto const before = host_clock::now();
  std::atomic<int> came{0};
  made.start.run(
      [&](std::size_t /*number*/) {
        ++came;
        EXPECT_TRUE(made.start.wait_for_all());
        EXPECT_EQ(came, 2);
        EXPECT_FALSE(made.start.ended());
      },
      {});
  EXPECT_GE(made.start.opened_at(), before);
  EXPECT_EQ(made.start.by_kernels(), GetParam());
  for (auto* const each : made.flows) { EXPECT_FALSE(made.start.was_late(*each)); }
}

TEST_P(links_start_together, begins_no_flow_before_the_opening) {
  two_flows made;
  std::deque<device_clock> clocks;
  std::deque<flow_runner> runners;
  for (auto* const each : made.flows) {
    auto const& clock = clocks.emplace_back(each->plan().device, each->on(), patience{60});
    runners.emplace_back(*each, clock, run_plan{0, 60, GetParam(), 60});
  }
  made.start.run(
      [&](std::size_t number) {
        if (number == 0) {
          // The other flow has queued its items, and has time to begin them.
          while (count_of("cudaMemcpyAsync") < 2) { std::this_thread::yield(); }
          std::this_thread::sleep_for(std::chrono::milliseconds{200});
        }
        runners.at(number).run(made.start);
      },
      {});
  constexpr double rounding_ns = 1e6;
  for (auto& each : runners) {
    ASSERT_EQ(each.stamps().begin_ns.size(), 2U);
    EXPECT_GE(static_cast<double>(each.stamps().begin_ns.front()) + rounding_ns,
              static_cast<double>(steady_ns(made.start.opened_at())));
  }
}

TEST_P(links_start_together, wakes_a_thread_that_waits_when_it_is_interrupted) {
  two_flows made;
  for (auto const throws : {false, true}) {
    start_together begin{made.flows, GetParam(), 60};
    std::atomic<bool> waits{false};
    std::atomic<bool> woken{false};
    int asked = 0;
    auto const work = [&](std::size_t number) {
      if (number == 0) {
        waits = true;
        EXPECT_FALSE(begin.wait_for_all());
        woken = true;
      }
      while (!woken) { std::this_thread::yield(); }  // its own end would wake the other thread
    };
    auto const interrupted = [&] {
      asked += waits ? 1 : 0;
      if (asked == 2 && throws) { throw std::runtime_error("asked"); }
      return asked == 2;
    };
    if (throws) {
      EXPECT_EQ(text_of<std::runtime_error>([&] { begin.run(work, interrupted); }), "asked");
    } else {
      EXPECT_THROW(begin.run(work, interrupted), cancelled_error);
    }
    EXPECT_EQ(asked, 2);
  }
}

TEST_P(links_start_together, throws_the_first_error_and_lets_the_other_threads_end) {
  two_flows made;
  std::atomic<bool> other_ended{false};
  auto const work = [&](std::size_t number) {
    if (number == 0) { throw std::runtime_error("first"); }
    EXPECT_FALSE(made.start.wait_for_all());
    other_ended = true;
    throw std::runtime_error("second");
  };
  EXPECT_EQ(text_of<std::runtime_error>([&] { made.start.run(work, {}); }), "first");
  EXPECT_TRUE(other_ended);
  EXPECT_TRUE(made.start.ended());
}

TEST_P(links_start_together, knows_that_the_gate_opened_by_itself) {
  two_flows made;
  start_together begin{made.flows, GetParam(), 0.01};
  auto const work = [&](std::size_t number) {
    EXPECT_EQ(cudaStreamSynchronize(made.flows.at(number)->on().handle()), cudaSuccess);
    EXPECT_TRUE(begin.wait_for_all());
  };
  begin.run(work, {});
  for (auto* const each : made.flows) { EXPECT_TRUE(begin.was_late(*each)); }
}

TEST_P(links_start_together, starts_no_thread_if_the_streams_cannot_be_held) {
  two_flows made;
  hostrt::fail("cuLaunchKernel", 2, cudaErrorNotSupported);
  hostrt::fail("cuStreamWaitEvent", 1, cudaErrorNotSupported);
  EXPECT_THROW(
      made.start.run([](std::size_t /*number*/) { ADD_FAILURE() << "it was started"; }, {}),
      cuda_error);
}

}  // namespace
}  // namespace pyxfer::tests
