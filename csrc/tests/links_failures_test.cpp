#include "cuda/bracket.hpp"
#include "cuda/device.hpp"
#include "links/device_clock.hpp"
#include "links_support.hpp"

namespace pyxfer::tests {
namespace {

struct use {
  std::string name;
  std::function<void()> action;
};

void use_devices() {
  static_cast<void>(device_count());
  static_cast<void>(properties_of(0));
  static_cast<void>(memory_info(0));
  synchronize_device(0);
  context_guard const guard{primary_context(1)};
}

void use_peers() {
  static_cast<void>(can_access_peer(0, 1));
  enable_peer(0, 1);
  disable_peer(0, 1);
}

void relax_captures() {
  capture_relaxation const relaxed;
  relax_captures_in_this_thread();
}

void use_events() {
  stream const own{0};
  event start{0};
  event stop{0};
  start.record(own.view());
  start.hold(own.view());
  stop.record(own.view());
  synchronize_device(0);
  EXPECT_TRUE(stop.passed());
  EXPECT_GE(stop.seconds_since(start), 0);
}

void use_brackets() {
  stream const theirs{0};
  bracket drained{0};
  bracket on_stream{0, theirs.view()};
  for (auto* const around : {&drained, &on_stream}) {
    around->begin();
    around->end();
    EXPECT_TRUE(around->ended_within(60));
    EXPECT_LT(around->elapsed_s(), 60);
    around->close();
  }
}

void use_device_clocks() {
  stream on{0};
  device_clock clock{0, on.view(), patience{60}};
  clock.compare_again(on.view(), patience{60});
  clock.close();
  on.close();
}

void make_cycles() {
  device_buffer const memory{item, 0};
  static_cast<void>(make_cycle({memory.address(), item, 64, 1, 0}));
}

void make_flows() {
  link_ends ends;
  flow const made{ends.upload(), &ends.with};
  flow{ends.upload(), &ends.with}.close();
}

void run_between_two_devices(bool by_kernels) {
  enable_peer(1, 0);
  link_ends ends0{0};
  link_ends ends1{1};
  flow up{ends0.upload(), &ends0.with};
  device_buffer const read{item, 0};
  auto plan = ends1.upload(flow_engine::sm);
  plan.source = read.address();
  plan.source_device = 0;
  flow across{plan, &ends1.with};
  static_cast<void>(run({&up, &across}, {0, 60, by_kernels, 60}));
}

class every_failure : public links_test, public ::testing::WithParamInterface<use> {};

INSTANTIATE_TEST_SUITE_P(
    of, every_failure,
    ::testing::Values(use{"devices", use_devices}, use{"peers", use_peers},
                      use{"captures", relax_captures}, use{"events", use_events},
                      use{"brackets", use_brackets}, use{"device_clocks", use_device_clocks},
                      use{"cycles", make_cycles}, use{"flows", make_flows},
                      use{"runs_with_kernel_gates", [] { run_between_two_devices(true); }},
                      use{"runs_with_host_gates", [] { run_between_two_devices(false); }}),
    [](auto const& of) { return of.param.name; });

TEST_P(every_failure, is_reported_and_leaves_nothing) {
  expect_every_failure_reported([] {
    hostrt::set_device_count(2);
    GetParam().action();
  });
}

}  // namespace
}  // namespace pyxfer::tests
