#include "links/run.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"
#include "links/device_clock.hpp"
#include "links/flow_runner.hpp"
#include "links/start_together.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

namespace pyxfer {
namespace {

void require(bool holds, char const* text) {
  if (!holds) { throw std::invalid_argument(text); }
}

constexpr double longest_gate_s = 86400;

/// A kernel that reaches the memory of a peer without access would end the use of CUDA in the
/// process.
void check_access(flow_plan const& plan) {
  if (plan.engine == flow_engine::ce) { return; }
  for (auto const side : {plan.source_device, plan.destination_device}) {
    auto const used = plan.engine != flow_engine::chase || side == plan.source_device;
    auto const is_peer = used && side != flow::host && side != plan.device;
    require(!is_peer || has_access(plan.device, side),
            "the device of a flow has no access to the memory of its peer: call enable_peer first");
  }
}

void check(std::vector<flow*> const& flows, run_plan const& plan) {
  require(!flows.empty(), "a run needs at least one flow");
  require(std::set<flow*>(flows.begin(), flows.end()).size() == flows.size(),
          "a flow is in this run twice");
  require(std::isfinite(plan.seconds) && plan.seconds >= 0 && std::isfinite(plan.deadline_s) &&
              plan.deadline_s > 0 && plan.gate_timeout_s >= 0 &&
              plan.gate_timeout_s <= longest_gate_s,
          "the durations of a run are not negative, and a gate opens within a day");
  for (auto* const each : flows) { check_access(each->plan()); }
}

constexpr int any_number = std::numeric_limits<int>::max() - 1;

/// How long a run that has failed waits for the items that are still under way.
constexpr std::chrono::milliseconds leaving_time{500};

/// One run: its clocks, one for each device, and its runners.
class session {
 public:
  session(std::vector<flow*> const& flows, run_plan const& plan)
      : flows_{flows}, plan_{plan}, limit_{plan.deadline_s} {
    for (auto* const each : flows_) {
      users_.push_back(enter(each->users(), "a flow", 0));
      if (each->with() != nullptr) {
        users_.push_back(enter(each->with()->users(), "the kernels of a flow", any_number));
      }
    }
    for (auto* const each : flows_) { runners_.emplace_back(*each, clock_of(*each), plan_); }
  }

  std::vector<flow_stamps> run(interruption const& interrupted) {
    start_together start{flows_, plan_.kernel_gate, plan_.gate_timeout_s};
    try {
      start.run([&](std::size_t i) { runners_[i].run(start); }, interrupted);
    } catch (std::exception const& fault) {
      if (leave()) { throw; }
      throw timeout_error(
          "An item of a flow was still under way half a second after the run was given up, so its "
          "memory is kept until the process ends. The run was given up because of this: " +
          std::string{fault.what()});
    }
    return stamps(start);
  }

 private:
  device_clock& clock_of(flow const& one) {
    auto const device = one.plan().device;
    auto const found = std::find_if(clocks_.begin(), clocks_.end(), [&](device_clock const& known) {
      return known.device() == device;
    });
    return found != clocks_.end() ? *found : clocks_.emplace_back(device, one.on(), limit_);
  }

  /// Returns whether nothing is under way any more.
  [[nodiscard]] bool leave() noexcept {
    auto const limit = host_clock::now() + leaving_time;
    auto ended = true;
    for (auto& each : runners_) { ended = each.leave(limit) && ended; }
    return ended;
  }

  std::vector<flow_stamps> stamps(start_together const& start) {
    std::set<int> compared;
    for (auto const& each : runners_) {
      auto const& one = each.of();
      if (compared.insert(one.plan().device).second) {
        clock_of(one).compare_again(one.on(), limit_);
      }
    }
    closing clocks;
    for (auto& each : clocks_) { clocks.close(each); }
    clocks.finish();
    std::vector<flow_stamps> found;
    for (auto& each : runners_) {
      auto& one = found.emplace_back(std::move(each.stamps()));
      one.clock_error_ns = clock_of(each.of()).error_ns();
      one.late = start.was_late(each.of());
      one.kernel_gate = start.by_kernels();
    }
    return found;
  }

  std::vector<flow*> const& flows_;
  run_plan const& plan_;
  patience limit_;
  std::vector<in_use> users_;
  std::deque<device_clock> clocks_;
  std::deque<flow_runner> runners_;
};

}  // namespace

std::vector<flow_stamps> run_flows(std::vector<flow*> const& flows, run_plan const& plan,
                                   interruption const& interrupted) {
  note_process();
  check(flows, plan);
  return session{flows, plan}.run(interrupted);
}

}  // namespace pyxfer
