#include "links/flow.hpp"

#include "copy/gate.hpp"
#include "cuda/device.hpp"
#include "fork_support.hpp"
#include "links_support.hpp"

#include <optional>

namespace pyxfer::tests {
namespace {

using links_flow = links_test;

TEST_F(links_flow, engines_have_words) {
  EXPECT_EQ(flow_engine_of("ce"), flow_engine::ce);
  EXPECT_EQ(flow_engine_of("sm"), flow_engine::sm);
  EXPECT_EQ(flow_engine_of("chase"), flow_engine::chase);
  EXPECT_EQ(flow_engine_of("compute"), flow_engine::compute);
  EXPECT_THROW(static_cast<void>(flow_engine_of("")), std::invalid_argument);
}

/// Whether a flow with this plan is refused.
bool is_refused(flow_plan const& plan, kernels* with) {
  try {
    flow const made{plan, with};
    return false;
  } catch (std::invalid_argument const&) { return true; }
}

TEST_F(links_flow, is_refused_if_its_plan_is_invalid) {
  link_ends ends;
  link_ends other{1};
  auto const good = ends.upload(flow_engine::sm);
  EXPECT_FALSE(is_refused(good, &ends.with));
  EXPECT_TRUE(is_refused(good, nullptr));
  EXPECT_TRUE(is_refused(good, &other.with));
  auto const refused = [&](auto const& change) {
    auto plan = good;
    change(plan);
    return is_refused(plan, &ends.with);
  };
  EXPECT_TRUE(refused([](auto& plan) { plan.depth = 0; }));
  EXPECT_FALSE(refused([](auto& plan) { plan.depth = flow::most_depth; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.depth = flow::most_depth + 1; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.bytes = 0; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.bytes -= 8; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.source += 8; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.source = 0; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.destination = 0; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.pace_bytes_per_s = -1; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.destination_device = flow::host; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.destination_device = 1; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.source_device = 0; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.engine = flow_engine::chase; }));
}

TEST_F(links_flow, is_refused_if_its_computation_is_invalid) {
  link_ends ends;
  link_ends other{1};
  auto const good = ends.computation(1);
  EXPECT_FALSE(is_refused(good, &ends.with));
  EXPECT_TRUE(is_refused(good, nullptr));
  EXPECT_TRUE(is_refused(good, &other.with));
  auto const refused = [&](auto const& change) {
    auto plan = good;
    change(plan);
    return is_refused(plan, &ends.with);
  };
  EXPECT_FALSE(refused([](auto& plan) { plan.bytes = kernels::results_bytes; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.bytes = 0; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.bytes -= 4; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.rounds = 0; }));
  EXPECT_TRUE(refused([](auto& plan) { plan.destination = 0; }));
  EXPECT_TRUE(refused([&](auto& plan) { plan.destination = ends.host.address(); }));
  EXPECT_TRUE(refused([](auto& plan) { plan.destination_device = flow::host; }));
  EXPECT_TRUE(refused([&](auto& plan) {
    plan.destination = other.memory.address();
    plan.destination_device = 1;
  }));
}

TEST_F(links_flow, reads_pageable_memory_only_by_kernels_and_through_page_tables) {
  link_ends ends;
  host_buffer const pageable{item, memory_kind::pageable, 0};
  auto plan = ends.upload(flow_engine::sm);
  plan.source = pageable.address();
  EXPECT_TRUE(is_refused(plan, &ends.with));
  hostrt::set_attribute_of(0, cudaDevAttrPageableMemoryAccess, 1);
  EXPECT_FALSE(is_refused(plan, &ends.with));
  plan.engine = flow_engine::ce;
  EXPECT_TRUE(is_refused(plan, &ends.with));
}

TEST_F(links_flow, makes_no_call_after_abandon) {
  link_ends ends;
  auto const before = live();
  flow used{ends.upload(), &ends.with};
  used.abandon();
  EXPECT_TRUE(used.closed());
  auto const calls = hostrt::calls();
  used.close();
  EXPECT_EQ(hostrt::calls(), calls);
  EXPECT_EQ(live().size(), before.size() + 6);  // a stream, four events and the words
  release_all_but(before);
}

TEST_F(links_flow, clears_the_result_of_the_last_item_in_its_place) {
  link_ends ends;
  flow used{ends.chase(1), &ends.with};
  device_guard const guard{0};
  gate held{used.on(), 60};
  used.result(0).ran = 1;
  used.issue(0, 0);
  EXPECT_EQ(used.result(0).ran, 0U);
  held.open();
  EXPECT_EQ(cudaStreamSynchronize(used.on().handle()), cudaSuccess);
  EXPECT_EQ(used.result(0).ran, 1U);
}

TEST_F(links_flow, releases_nothing_in_a_forked_child) {
  link_ends ends;
  std::optional<flow> held;
  held.emplace(ends.upload(), &ends.with);
  EXPECT_EQ(in_forked_child([&] {
              auto const calls = hostrt::calls();
              held->close();
              return std::string{hostrt::calls() == calls ? "no call" : "calls"};
            }),
            "no call");
}

}  // namespace
}  // namespace pyxfer::tests
