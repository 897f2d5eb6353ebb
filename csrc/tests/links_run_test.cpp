#include "links/run.hpp"

#include "links_support.hpp"

#include <atomic>
#include <thread>

namespace pyxfer::tests {
namespace {

using links_run = links_test;

run_plan with_gate(bool by_kernels, double seconds = 0) { return {seconds, 60, by_kernels, 60}; }

TEST_F(links_run, copies_and_chases_on_two_devices_at_the_same_time) {
  link_ends ends0{0};
  link_ends ends1{1};
  link_ends cycle{1};
  for (auto const by_kernels : {true, false}) {
    flow first{ends0.upload(), &ends0.with};
    flow second{ends1.upload(flow_engine::sm), &ends1.with};
    flow third{cycle.chase(8), &cycle.with};
    auto const found = run({&first, &second, &third}, with_gate(by_kernels));
    ASSERT_EQ(found.size(), 3U);
    for (auto const& one : found) {
      EXPECT_EQ(one.begin_ns.size(), 2U);
      EXPECT_EQ(one.end_ns.size(), 2U);
      EXPECT_LE(one.end_ns[0], one.begin_ns[1]);
      EXPECT_EQ(one.kernel_gate, by_kernels);
      EXPECT_FALSE(one.late);
    }
    EXPECT_TRUE(ends0.arrived());
    EXPECT_TRUE(ends1.arrived());
    EXPECT_TRUE(found[0].kernel_ns.empty());
    EXPECT_EQ(found[2].multiprocessor, (std::vector<std::int32_t>{0, 0}));
    EXPECT_GT(found[2].kernel_ns[0], 0);
  }
}

TEST_F(links_run, keeps_the_queues_full_for_its_time) {
  link_ends ends;
  hostrt::model_link({static_cast<double>(item) / 1e-3, 0}, {0, 0});
  flow up{ends.upload(), &ends.with};
  auto const found = run({&up}, with_gate(true, 0.05));
  auto const& ends_ns = found[0].end_ns;
  EXPECT_GT(ends_ns.size(), 2U);
  auto shortest = ends_ns[0] - found[0].begin_ns[0];
  for (std::size_t i = 0; i < ends_ns.size(); ++i) {
    shortest = std::min(shortest, ends_ns[i] - found[0].begin_ns[i]);
  }
  // An item is longer by the time of its call if a busy machine let the queue run dry.
  EXPECT_NEAR(static_cast<double>(shortest), 1e6, 20);
}

TEST_F(links_run, is_refused_if_a_flow_is_unusable) {
  link_ends ends;
  flow up{ends.upload(), &ends.with};
  auto const refused = [&](std::vector<flow*> const& flows, run_plan const& plan) {
    EXPECT_THROW(static_cast<void>(run(flows, plan)), std::invalid_argument);
  };
  refused({}, at_once);
  refused({&up, &up}, at_once);
  refused({&up}, {-1, 60, true, 60});
  refused({&up}, {0, 0, true, 60});
  refused({&up}, {0, 60, true, 0});
  ends.with.close();
  refused({&up}, at_once);
  up.close();
  refused({&up}, at_once);
}

TEST_F(links_run, is_refused_beside_another_run_of_the_same_flow) {
  link_ends ends;
  flow up{ends.upload(), &ends.with};
  hostrt::stall("cudaMemcpyAsync", 1, 1e5);
  std::thread other{[&] { EXPECT_EQ(run({&up}).size(), 1U); }};
  while (count_of("cudaMemcpyAsync") == 0) { std::this_thread::yield(); }
  EXPECT_THROW(static_cast<void>(run({&up})), std::logic_error);
  EXPECT_THROW(up.close(), std::logic_error);
  EXPECT_THROW(ends.with.close(), std::logic_error);
  hostrt::release_stalls();
  other.join();
}

TEST_F(links_run, reports_every_failure_and_leaves_nothing) {
  for (auto const by_kernels : {true, false}) {
    expect_every_failure_reported([=] {
      hostrt::set_device_count(2);
      link_ends ends0{0};
      link_ends ends1{1};
      flow up{ends0.upload(), &ends0.with};
      device_buffer read{item, 0};
      auto plan = ends1.upload(flow_engine::sm);
      plan.source = read.address();
      plan.source_device = 0;
      flow across{plan, &ends1.with};
      static_cast<void>(run({&up, &across}, with_gate(by_kernels)));
    });
  }
}

TEST_F(links_run, ends_when_it_is_interrupted) {
  link_ends ends;
  flow up{ends.upload(), &ends.with};
  std::atomic<int> asked{0};
  auto const interrupted = [&] { return ++asked == 2; };
  EXPECT_THROW(static_cast<void>(run_flows({&up}, {1e6, 60, true, 60}, interrupted)),
               cancelled_error);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(run({&up})[0].end_ns.size(), 2U);
}

TEST_F(links_run, times_out_if_a_device_hangs) {
  for (auto const by_kernels : {true, false}) {
    link_ends ends;
    flow up{ends.upload(), &ends.with};
    hostrt::stall("cudaMemcpyAsync", 2, 1e5);
    EXPECT_THROW(static_cast<void>(run({&up}, {0, 0.05, by_kernels, 60})), timeout_error);
    EXPECT_EQ(take_cleanup_failures().size(), 1U);
    hostrt::release_stalls();
  }
}

TEST_F(links_run, ends_if_the_device_is_lost) {
  link_ends ends;
  flow up{ends.upload(), &ends.with};
  hostrt::fail_sticky("cudaMemcpyAsync", 50, cudaErrorLaunchFailure);
  EXPECT_THROW(static_cast<void>(run({&up}, {1e6, 60, true, 60})), device_lost_error);
  hostrt::reset();
  EXPECT_FALSE(take_cleanup_failures().empty());
}

TEST_F(links_run, says_that_a_gate_opened_by_itself) {
  for (auto const by_kernels : {true, false}) {
    link_ends ends;
    flow up{ends.upload(), &ends.with};
    EXPECT_FALSE(run({&up}, {0, 60, by_kernels, 60})[0].late);
    // The items are queued after this, because the copy's call waits for nothing else.
    auto const held = [&](int nth) {
      hostrt::stall("cuThreadExchangeStreamCaptureMode", nth, 0.05);
      return run({&up}, {0, 60, by_kernels, 0.01})[0].late;
    };
    auto late = false;
    for (int nth = 1; nth < 40 && !late; ++nth) { late = held(nth); }
    EXPECT_TRUE(late);
    hostrt::reset();
    hostrt::set_device_count(2);
  }
}

TEST_F(links_run, allows_access_to_the_memory_of_a_peer_for_kernels) {
  link_ends ends0{0};
  link_ends ends1{1};
  auto plan = ends0.upload(flow_engine::sm);
  plan.source = ends1.memory.address();
  plan.source_device = 1;
  flow across{plan, &ends0.with};
  hostrt::refuse_peer(0, 1, true);
  EXPECT_THROW(static_cast<void>(run({&across})), cuda_error);
  hostrt::refuse_peer(0, 1, false);
  EXPECT_EQ(run({&across})[0].end_ns.size(), 2U);
}

}  // namespace
}  // namespace pyxfer::tests
