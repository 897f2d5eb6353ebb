#pragma once

#include "links/device_clock.hpp"
#include "links/flow.hpp"
#include "links/run.hpp"
#include "links/start_together.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyxfer {

/// One flow in one run. All of it but `leave` is used by the thread of the flow.
class flow_runner {
 public:
  flow_runner(flow& of, device_clock const& clock, run_plan const& plan)
      : flow_{of}, clock_{clock}, plan_{plan}, with_begin_(of.plan().depth) {}

  /// Queues the first items, waits for the other threads, and issues until the end. Throws
  /// `timeout_error` if the device does not finish an item in time.
  void run(start_together& others);

  /// Waits until `limit` for the items that a failed run left queued, so that memory is not
  /// released while a copy uses it. Returns whether they have ended or never will, because the
  /// device is lost. If not, the flow keeps its memory.
  [[nodiscard]] bool leave(host_clock::time_point limit) noexcept;

  [[nodiscard]] flow& of() const noexcept { return flow_; }
  [[nodiscard]] flow_stamps& stamps() noexcept { return stamps_; }

 private:
  [[nodiscard]] std::size_t in_flight() const noexcept { return issued_ - ended_; }
  [[nodiscard]] std::size_t place_of(std::size_t item) const { return item % with_begin_.size(); }
  [[nodiscard]] double due_s() const;
  [[nodiscard]] bool has_run_dry();
  [[nodiscard]] bool oldest_has_ended();
  void issue();
  void take_oldest();
  void take_result(std::size_t place);
  void issue_until_end(start_together const& others);

  flow& flow_;
  device_clock const& clock_;
  run_plan plan_;
  std::vector<bool> with_begin_;
  std::size_t issued_{0};
  std::size_t ended_{0};
  flow_stamps stamps_{};
};

}  // namespace pyxfer
