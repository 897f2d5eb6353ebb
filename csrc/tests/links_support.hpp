#pragma once

#include "cuda/memory.hpp"
#include "engine_support.hpp"
#include "links/cycle.hpp"
#include "links/flow.hpp"
#include "links/kernels.hpp"
#include "links/run.hpp"

#include <cstddef>
#include <cstring>
#include <vector>

namespace pyxfer::tests {

inline constexpr std::size_t item = std::size_t{64} << 10U;

/// Two devices.
class links_test : public engine_test {
 protected:
  void SetUp() override {
    engine_test::SetUp();
    hostrt::set_device_count(2);
  }
};

/// Page-locked memory, and memory of a device, with kernels for it.
struct link_ends {
  explicit link_ends(int device = 0)
      : number{device},
        host{item, memory_kind::pinned, device},
        memory{item, device},
        with{device} {
    std::memset(reinterpret_cast<void*>(host.address()), 1, item);
    std::memset(inside(memory.address()), 2, item);
  }

  [[nodiscard]] flow_plan upload(flow_engine by = flow_engine::ce) const {
    return {number, by, memory.address(), host.address(), item, 2, 0, flow::host, number, 0, -1};
  }
  [[nodiscard]] flow_plan computation(std::uint32_t rounds) const {
    auto plan = upload(flow_engine::compute);
    plan.source = 0;
    plan.rounds = rounds;
    return plan;
  }
  /// Through the page-locked memory.
  [[nodiscard]] flow_plan chase(std::uint32_t hops) const {
    static_cast<void>(make_cycle({host.address(), item, 64, 1, flow::host}));
    return {number, flow_engine::chase, 0,          host.address(), item, 2,
            0,      flow::host,         flow::host, hops,           -1};
  }
  [[nodiscard]] bool arrived() const {
    return std::memcmp(reinterpret_cast<void const*>(host.address()), inside(memory.address()),
                       item) == 0;
  }

  int number;
  host_buffer host;
  device_buffer memory;
  kernels with;
};

inline constexpr run_plan at_once{0, 60, true, 60};

inline std::vector<flow_stamps> run(std::vector<flow*> const& flows,
                                    run_plan const& plan = at_once) {
  return run_flows(flows, plan, {});
}

}  // namespace pyxfer::tests
