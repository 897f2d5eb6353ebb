#include "links/run.hpp"

#include "copy/gate.hpp"
#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/peer.hpp"
#include "cuda/process.hpp"
#include "cuda/threads.hpp"
#include "links/course.hpp"
#include "links/device_clock.hpp"
#include "links/meeting.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
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
              plan.deadline_s > 0 && plan.gate_timeout_s > 0 &&
              plan.gate_timeout_s <= longest_gate_s,
          "the durations of a run are positive numbers, and a gate opens within a day");
  for (auto* const each : flows) { check_access(each->plan()); }
}

/// Holds all flows until it opens: by a kernel on each stream that polls one word, or by one host
/// function, for which the other streams wait. The driver runs host functions one at a time.
class entrance {
 public:
  entrance(std::vector<flow*> const& flows, run_plan const& plan)
      : flows_{flows}, timeout_s_{plan.gate_timeout_s} {
    auto const has_kernels = [](flow const* each) { return each->with() != nullptr; };
    by_kernels_ = plan.kernel_gate && std::all_of(flows.begin(), flows.end(), has_kernels);
  }
  ~entrance() { open(); }
  entrance(entrance const&) = delete;
  entrance& operator=(entrance const&) = delete;
  entrance(entrance&&) = delete;
  entrance& operator=(entrance&&) = delete;

  void close() {
    if (by_kernels_) {
      hold_by_kernels();
    } else {
      hold_by_function();
    }
  }

  void open() noexcept {
    if (by_kernels_) { flows_.front()->gate_flag().store(1, std::memory_order_release); }
    if (gate_) { gate_->open(); }
  }

  [[nodiscard]] bool by_kernels() const noexcept { return by_kernels_; }
  /// Valid after the work behind the gate has finished.
  [[nodiscard]] bool was_late(flow const& one) const {
    return by_kernels_ ? one.gate_late().load(std::memory_order_acquire) != 0 : gate_->timed_out();
  }

 private:
  void hold_by_kernels() {
    auto& flag = flows_.front()->gate_flag();
    flag.store(0);
    for (auto* const each : flows_) {
      each->share_words(*flows_.front());
      device_guard const guard{each->plan().device};
      each->gate_late().store(0);
      each->with()->hold(reinterpret_cast<std::uintptr_t>(&flag),
                         reinterpret_cast<std::uintptr_t>(&each->gate_late()), timeout_s_,
                         each->on());
    }
  }

  void hold_by_function() {
    auto& first = *flows_.front();
    device_guard const guard{first.plan().device};
    gate_ = std::make_unique<gate>(first.on(), timeout_s_);
    auto& passed = first.end_mark(0);  // free until the first item has been queued
    passed.record(first.on());
    for (auto* const each : flows_) {
      if (each != &first) { passed.hold(each->on()); }
    }
  }

  std::vector<flow*> const& flows_;
  double timeout_s_;
  bool by_kernels_;
  std::unique_ptr<gate> gate_;
};

/// The threads of a run, which are joined in any case.
class issuers {
 public:
  issuers(std::deque<course>& courses, meeting& place, entrance& held)
      : meeting_{place}, entrance_{held} {
    threads_.reserve(courses.size());
    try {
      for (auto& each : courses) { threads_.push_back(start(each)); }
    } catch (...) {
      meeting_.fail(std::current_exception());
      join();
      throw;
    }
  }
  ~issuers() { join(); }
  issuers(issuers const&) = delete;
  issuers& operator=(issuers const&) = delete;
  issuers(issuers&&) = delete;
  issuers& operator=(issuers&&) = delete;

  /// After an exception the threads may still wait for the opening.
  void join() noexcept {
    meeting_.end();
    entrance_.open();
    for (auto& thread : threads_) { thread.join(); }
    threads_.clear();
  }

 private:
  std::thread start(course& one) {
    return start_thread("pyxfer-flow", [this, &one] {
      try {
        one.run(meeting_);
      } catch (...) { meeting_.fail(std::current_exception()); }
      meeting_.finish();
    });
  }

  meeting& meeting_;
  entrance& entrance_;
  std::vector<std::thread> threads_;
};

constexpr int any_number = std::numeric_limits<int>::max() - 1;

std::string text_of(std::exception_ptr const& fault) {
  try {
    std::rethrow_exception(fault);
  } catch (std::exception const& error) { return error.what(); } catch (...) {
    return "an unknown error";
  }
}

/// How long a run that has failed waits for the items that are still under way.
constexpr std::chrono::milliseconds leaving_time{500};

/// One run: its clocks, one for each device, and its courses.
class session {
 public:
  session(std::vector<flow*> const& flows, run_plan const& plan)
      : flows_{flows}, plan_{plan}, limit_{plan.deadline_s} {
    for (auto* const each : flows_) {
      uses_.emplace_back(each->use(), "a flow", 0);
      if (each->with() != nullptr) {
        uses_.emplace_back(each->with()->use(), "the kernels of a flow", any_number);
      }
    }
    for (auto* const each : flows_) { courses_.emplace_back(*each, clock_of(*each), plan_); }
  }

  std::vector<flow_stamps> run(interruption const& interrupted) {
    entrance held{flows_, plan_};
    meeting place{flows_.size()};
    try {
      held.close();
      issuers const threads{courses_, place, held};
      if (place.await_arrivals(interrupted)) {
        place.open([&] { held.open(); });
      } else {
        held.open();
      }
      place.await_finishes(interrupted);
    } catch (...) { place.fail(std::current_exception()); }
    if (auto const fault = place.fault()) {
      held.open();
      if (leave()) { std::rethrow_exception(fault); }
      throw timeout_error(
          "An item of a flow was still under way half a second after the run was given up, so its "
          "memory is kept until the process ends. The run was given up because of this: " +
          text_of(fault));
    }
    return stamps(held);
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
    for (auto& each : courses_) { ended = each.leave(limit) && ended; }
    return ended;
  }

  std::vector<flow_stamps> stamps(entrance const& held) {
    std::set<int> compared;
    for (auto const& each : courses_) {
      auto const& one = each.of();
      if (compared.insert(one.plan().device).second) {
        clock_of(one).compare_again(one.on(), limit_);
      }
    }
    closing clocks;
    for (auto& each : clocks_) { clocks.close(each); }
    clocks.finish();
    std::vector<flow_stamps> found;
    for (auto& each : courses_) {
      auto& one = found.emplace_back(std::move(each.stamps()));
      one.clock_error_ns = clock_of(each.of()).error_ns();
      one.late = held.was_late(each.of());
      one.kernel_gate = held.by_kernels();
    }
    return found;
  }

  std::vector<flow*> const& flows_;
  run_plan const& plan_;
  patience limit_;
  std::vector<in_use> uses_;
  std::deque<device_clock> clocks_;
  std::deque<course> courses_;
};

}  // namespace

std::vector<flow_stamps> run_flows(std::vector<flow*> const& flows, run_plan const& plan,
                                   interruption const& interrupted) {
  note_process();
  check(flows, plan);
  return session{flows, plan}.run(interrupted);
}

}  // namespace pyxfer
