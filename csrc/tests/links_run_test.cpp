#include "links/run.hpp"

#include "cuda/device.hpp"
#include "links_support.hpp"

#include <array>
#include <atomic>
#include <future>
#include <iostream>
#include <limits>
#include <thread>

namespace pyxfer::tests {
namespace {

using links_run = links_test;

bool is_pinned(std::string const& allocation) { return allocation.rfind("pinned", 0) == 0; }

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

TEST_F(links_run, through_the_host_waits_for_a_gate_and_needs_none) {
  link_ends ends0{0};
  link_ends ends1{1};
  device_buffer const source{item, 0};
  auto plan = ends1.upload();
  plan.source = source.address();
  plan.source_device = 0;
  flow across{plan, &ends1.with};
  EXPECT_TRUE(run({&across}, {0, 60, true, 0.001})[0].late);
  auto const free = run({&across}, {0, 60, true, 0})[0];
  EXPECT_FALSE(free.late);
  EXPECT_FALSE(free.kernel_gate);
  EXPECT_EQ(free.end_ns.size(), 2U);
}

TEST_F(links_run, computes) {
  link_ends ends;
  flow work{ends.computation(1), &ends.with};
  auto const found = run({&work});
  EXPECT_EQ(found[0].end_ns.size(), 2U);
  EXPECT_TRUE(found[0].kernel_ns.empty());
  auto const* const results = reinterpret_cast<float const*>(inside(ends.memory.address()));
  EXPECT_EQ(results[0], 3.70910072F);
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
  refused({&up}, {0, 60, true, -1});
  constexpr auto endless = std::numeric_limits<double>::infinity();
  refused({&up}, {0, endless, true, 60});
  refused({&up}, {0, 60, true, endless});
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
    hostrt::release_stalls();
    EXPECT_EQ(cudaStreamSynchronize(up.on().handle()), cudaSuccess);
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

TEST_F(links_run, changes_no_access_to_the_memory_of_peers) {
  link_ends ends0{0};
  link_ends ends1{1};
  auto plan = ends0.upload(flow_engine::sm);
  plan.source = ends1.memory.address();
  plan.source_device = 1;
  flow by_kernel{plan, &ends0.with};
  device_buffer const other{item, 0};
  plan.destination = other.address();
  plan.engine = flow_engine::ce;
  flow by_engine{plan, &ends0.with};
  enable_peer(0, 1);
  EXPECT_EQ(run({&by_kernel, &by_engine})[0].end_ns.size(), 2U);
  disable_peer(0, 1);
  EXPECT_THROW(static_cast<void>(run({&by_kernel})), std::invalid_argument);
  EXPECT_EQ(run({&by_engine}, {0, 60, true, 0})[0].end_ns.size(), 2U);
  EXPECT_EQ(count_of("cudaDeviceEnablePeerAccess"), 1);
}

/// PYXFER_STRESS_CLOSES is the number of rounds.
TEST_F(links_run, a_close_beside_a_run_comes_before_it_or_is_refused) {
  auto const wanted = static_cast<int>(number_from("PYXFER_STRESS_CLOSES", 300));
  if (wanted > 300) { ::alarm(0); }
  link_ends ends;
  std::array<long, 3> outcomes{};  // closes of flows and of kernels that came first, and runs
  for (int round = 0; round < wanted; ++round) {
    kernels with{0};
    flow up{ends.upload(), &with};
    std::atomic<bool> ready{false};
    std::atomic<bool> begun{false};
    std::thread closer{[&] {
      ready = true;
      for (int looks = 0; !begun; ++looks) {
        if (looks > 10'000) { std::this_thread::yield(); }
      }
      // Over all rounds, every step of a close comes between any two steps of the beginning of a
      // run.
      for (std::atomic<int> i{0}; i < 8 * (round % 100); ++i) {}
      try {
        if (round % 2 == 0) {
          up.close();
        } else {
          with.close();
        }
      } catch (std::logic_error const&) {}  // a run uses it
    }};
    while (!ready) { std::this_thread::yield(); }
    begun = true;
    try {
      EXPECT_EQ(run({&up})[0].end_ns.size(), 2U);
      ++outcomes[2];
    } catch (std::invalid_argument const&) { ++outcomes.at(static_cast<std::size_t>(round % 2)); }
    closer.join();
  }
  std::cerr << outcomes[0] << " closes of flows and " << outcomes[1]
            << " of kernels came before the run, " << outcomes[2] << " runs were first\n";
}

TEST_F(links_run, leaves_the_memory_of_a_device_that_hangs_while_another_one_fails) {
  for (auto const by_kernels : {true, false}) {
    hostrt::reset();
    hostrt::set_device_count(2);
    link_ends ends0{0};
    link_ends ends1{1};
    auto const before = live();
    flow fails{ends0.upload(), &ends0.with};
    flow hangs{ends1.upload(), &ends1.with};
    auto running = std::async(std::launch::async, [&] {
      return text_of<timeout_error>(
          [&] { static_cast<void>(run({&fails, &hangs}, {1e6, 1e6, by_kernels, 60})); });
    });
    auto const wait_for_copies = [](long more) {
      auto const now = count_of("cudaMemcpyAsync");
      while (count_of("cudaMemcpyAsync") < now + more) { std::this_thread::yield(); }
    };
    wait_for_copies(20);
    hostrt::hang_device(1);
    wait_for_copies(20);  // the queue of the device that hangs is full
    hostrt::fail("cudaMemcpyAsync", 1, cudaErrorNotSupported);
    EXPECT_NE(running.get().find("cudaMemcpyAsync"), std::string::npos);
    fails.close();
    EXPECT_THROW(hangs.close(), timeout_error);
    EXPECT_TRUE(hangs.closed());
    // The gate of the device that hangs may still poll the words of the other flow.
    auto const left = live();
    EXPECT_EQ(std::count_if(left.begin(), left.end(), is_pinned),
              std::count_if(before.begin(), before.end(), is_pinned) + (by_kernels ? 2 : 1));
    hostrt::release_stalls();
    release_all_but(before);
  }
}

TEST_F(links_run, closes_what_hung_and_then_answered) {
  link_ends ends;
  flow up{ends.upload(), &ends.with};
  hostrt::stall("cudaMemcpyAsync", 2, 1e5);
  EXPECT_THROW(static_cast<void>(run({&up}, {0, 0.05, true, 60})), timeout_error);
  hostrt::release_stalls();
  EXPECT_EQ(cudaStreamSynchronize(up.on().handle()), cudaSuccess);
  up.close();
}

TEST_F(links_run, waits_for_the_other_devices_after_one_was_lost) {
  link_ends ends0{0};
  link_ends ends1{1};
  flow lost{ends0.upload(flow_engine::sm), &ends0.with};
  flow slow{ends1.upload(), &ends1.with};
  hostrt::model_link({static_cast<double>(item) / 0.03, 0}, {0, 0});  // far less than a run waits
  // The third launch is the first copy of the first flow: two gates precede it.
  hostrt::fail_sticky("cuLaunchKernel", 3, cudaErrorLaunchFailure);
  EXPECT_THROW(static_cast<void>(run({&lost, &slow})), device_lost_error);
  EXPECT_EQ(cudaStreamQuery(slow.on().handle()), cudaSuccess);
  EXPECT_TRUE(ends1.arrived());
  hostrt::reset();
  hostrt::set_device_count(2);
  static_cast<void>(take_cleanup_failures());
}

}  // namespace
}  // namespace pyxfer::tests
