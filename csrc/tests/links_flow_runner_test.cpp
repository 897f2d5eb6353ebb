#include "links/flow_runner.hpp"

#include "links_support.hpp"

#include <ctime>
#include <stdexcept>
#include <thread>

namespace pyxfer::tests {
namespace {

constexpr double item_s = 2e-3;

class links_flow_runner : public links_test {
 protected:
  void SetUp() override {
    links_test::SetUp();
    hostrt::model_link({static_cast<double>(item) / item_s, 0}, {0, 0});
  }

  /// The stamps of one runner.
  flow_stamps run_alone(flow_plan const& plan, double seconds) {
    flow used{plan, &ends_.with};
    device_clock const clock{0, used.on(), patience{60}};
    flow_runner one{used, clock, {seconds, 60, true, 60}};
    std::vector<flow*> const flows{&used};
    start_together start{flows, true, 60};
    auto const work = [&](std::size_t /*number*/) {
      one.run(start);
      timespec taken{};
      ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &taken);
      cpu_s_ = static_cast<double>(taken.tv_sec) + static_cast<double>(taken.tv_nsec) / 1e9;
    };
    start.run(work, {});
    return one.stamps();
  }

  link_ends ends_;
  double cpu_s_{};  ///< of the thread of the runner
};

TEST_F(links_flow_runner, queues_as_many_items_as_it_is_deep) {
  auto plan = ends_.upload();
  plan.depth = 3;
  auto const found = run_alone(plan, 0);
  ASSERT_EQ(found.end_ns.size(), 3U);
  EXPECT_EQ(found.begin_ns[1], found.end_ns[0]);  // one event is the end and the next begin
  EXPECT_EQ(found.begin_ns[2], found.end_ns[1]);
}

TEST_F(links_flow_runner, has_a_new_begin_when_its_queue_was_empty) {
  auto plan = ends_.upload();
  plan.depth = 1;
  auto found = run_alone(plan, 10 * item_s);
  while (found.end_ns.size() < 2) {  // a busy machine issues one in this time
    found = run_alone(plan, 10 * item_s);
  }
  for (std::size_t i = 1; i < found.end_ns.size(); ++i) {
    EXPECT_GT(found.begin_ns[i], found.end_ns[i - 1]);
  }
}

TEST_F(links_flow_runner, keeps_its_pace) {
  auto plan = ends_.upload();
  plan.pace_bytes_per_s = static_cast<double>(item) / (10 * item_s);
  auto const found = run_alone(plan, 25 * item_s);
  EXPECT_LE(found.end_ns.size(), 3U);
}

TEST_F(links_flow_runner, sleeps_until_an_item_is_due) {
  auto plan = ends_.upload();
  plan.pace_bytes_per_s = static_cast<double>(item) / 0.2;
  auto const found = run_alone(plan, 1);
  EXPECT_LE(found.end_ns.size(), 6U);
  EXPECT_LT(cpu_s_, 0.1);
}

TEST_F(links_flow_runner, waits_for_what_it_leaves) {
  flow used{ends_.upload(), &ends_.with};
  flow other{ends_.upload(), &ends_.with};
  device_clock const clock{0, used.on(), patience{60}};
  flow_runner one{used, clock, {0, 60, true, 60}};
  std::vector<flow*> const flows{&used, &other};
  start_together start{flows, true, 60};
  auto const work = [&](std::size_t number) {
    if (number == 1) { throw std::runtime_error("the other flow"); }
    while (!start.ended()) { std::this_thread::yield(); }
    one.run(start);  // it queues its items, and does not wait for them
  };
  EXPECT_THROW(start.run(work, {}), std::runtime_error);
  EXPECT_TRUE(one.stamps().end_ns.empty());
  EXPECT_TRUE(one.leave(host_clock::now() + std::chrono::seconds{60}));
  EXPECT_EQ(cudaStreamQuery(used.on().handle()), cudaSuccess);
  EXPECT_TRUE(ends_.arrived());
}

}  // namespace
}  // namespace pyxfer::tests
