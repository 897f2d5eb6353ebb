#include "links/start_together.hpp"

#include "cuda/device.hpp"
#include "links/course.hpp"
#include "links_support.hpp"

#include <atomic>
#include <chrono>
#include <deque>
#include <stdexcept>
#include <thread>

namespace pyxfer::tests {
namespace {

/// Two flows on two devices. The parameter is whether kernels are their gate.
class links_start_together : public links_test, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    links_test::SetUp();
    ends0_.emplace(0);
    ends1_.emplace(1);
    first_.emplace(ends0_->upload(), &ends0_->with);
    second_.emplace(ends1_->upload(), &ends1_->with);
    flows_ = {&*first_, &*second_};
    start_.emplace(flows_, GetParam(), 60);
  }
  void TearDown() override {
    for (auto* const each : flows_) {  // the gate is open in any case
      EXPECT_EQ(cudaStreamSynchronize(each->on().handle()), cudaSuccess);
    }
    second_.reset();
    first_.reset();
    ends1_.reset();
    ends0_.reset();
    links_test::TearDown();
  }

  [[nodiscard]] start_together& start() { return *start_; }
  [[nodiscard]] std::vector<flow*> const& flows() const { return flows_; }

 private:
  std::optional<link_ends> ends0_;
  std::optional<link_ends> ends1_;
  std::optional<flow> first_;
  std::optional<flow> second_;
  std::vector<flow*> flows_;
  std::optional<start_together> start_;
};

INSTANTIATE_TEST_SUITE_P(by_kernels_or_a_function, links_start_together, ::testing::Bool());

TEST_P(links_start_together, lets_no_thread_continue_before_all_wait) {
  auto const before = host_clock::now();
  std::atomic<int> came{0};
  start().run(
      [&](std::size_t /*number*/) {
        ++came;
        EXPECT_TRUE(start().wait_for_all());
        EXPECT_EQ(came, 2);
        EXPECT_FALSE(start().ended());
      },
      {});
  EXPECT_GE(start().opened_at(), before);
  EXPECT_EQ(start().by_kernels(), GetParam());
  for (auto* const each : flows()) { EXPECT_FALSE(start().was_late(*each)); }
}

TEST_P(links_start_together, begins_no_flow_before_the_opening) {
  std::deque<device_clock> clocks;
  std::deque<course> courses;
  for (auto* const each : flows()) {
    auto const& clock = clocks.emplace_back(each->plan().device, each->on(), patience{60});
    courses.emplace_back(*each, clock, run_plan{0, 60, GetParam(), 60});
  }
  start().run(
      [&](std::size_t number) {
        if (number == 0) {
          // The other flow has queued its items, and has time to begin them.
          while (count_of("cudaMemcpyAsync") < 2) { std::this_thread::yield(); }
          std::this_thread::sleep_for(std::chrono::milliseconds{200});
        }
        courses.at(number).run(start());
      },
      {});
  constexpr double rounding_ns = 1e6;
  for (auto& each : courses) {
    ASSERT_EQ(each.stamps().begin_ns.size(), 2U);
    EXPECT_GE(static_cast<double>(each.stamps().begin_ns.front()) + rounding_ns,
              static_cast<double>(steady_ns(start().opened_at())));
  }
}

TEST_P(links_start_together, wakes_a_thread_that_waits_when_it_is_interrupted) {
  for (auto const throws : {false, true}) {
    start_together begin{flows(), GetParam(), 60};
    std::atomic<bool> waits{false};
    std::atomic<bool> woken{false};
    int asked = 0;
    auto const work = [&](std::size_t number) {
      waits = true;
      if (number == 0) { EXPECT_FALSE(begin.wait_for_all()); }
      woken = number == 0 || woken;
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
  std::atomic<bool> other_ended{false};
  auto const work = [&](std::size_t number) {
    if (number == 0) { throw std::runtime_error("first"); }
    EXPECT_FALSE(start().wait_for_all());
    other_ended = true;
    throw std::runtime_error("second");
  };
  EXPECT_EQ(text_of<std::runtime_error>([&] { start().run(work, {}); }), "first");
  EXPECT_TRUE(other_ended);
  EXPECT_TRUE(start().ended());
}

TEST_P(links_start_together, knows_that_the_gate_opened_by_itself) {
  start_together begin{flows(), GetParam(), 0.01};
  auto const work = [&](std::size_t number) {
    EXPECT_EQ(cudaStreamSynchronize(flows().at(number)->on().handle()), cudaSuccess);
    EXPECT_TRUE(begin.wait_for_all());
  };
  begin.run(work, {});
  for (auto* const each : flows()) { EXPECT_TRUE(begin.was_late(*each)); }
}

TEST_P(links_start_together, starts_no_thread_if_the_streams_cannot_be_held) {
  hostrt::fail("cuLaunchKernel", 2, cudaErrorNotSupported);
  hostrt::fail("cuStreamWaitEvent", 1, cudaErrorNotSupported);
  EXPECT_THROW(start().run([](std::size_t /*number*/) { ADD_FAILURE() << "it was started"; }, {}),
               cuda_error);
}

}  // namespace
}  // namespace pyxfer::tests
