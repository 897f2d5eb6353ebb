#pragma once

#include "cuda/wait.hpp"
#include "links/flow.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pyxfer {

struct run_plan {
  double seconds;         ///< after this time no item is queued any more
  double deadline_s;      ///< how long a device may take for one item
  bool kernel_gate;       ///< if every flow has kernels; else a host function is the gate
  double gate_timeout_s;  ///< a gate opens by itself after this time; 0: there is no gate
};

/// What one flow did: an entry for each item.
struct flow_stamps {
  // By the host's steady clock.
  std::vector<std::int64_t> begin_ns;
  std::vector<std::int64_t> end_ns;
  double clock_error_ns;
  bool late;         ///< the gate opened by itself, before every flow was queued
  bool kernel_gate;  ///< which gate it had
  // Of chases; multiprocessor -1 and zeros if no block ran on the wanted one.
  std::vector<double> kernel_ns;
  std::vector<std::int64_t> cycles;
  std::vector<std::int32_t> multiprocessor;
};

/// Runs all flows at the same time, each issued by a thread of its own. They begin when every one
/// has queued its first items, and keep their queues full for `seconds`. A run never changes peer
/// access: copies by a copy engine go with it or without. Throws std::invalid_argument if a kernel
/// would reach the memory of a peer without it (`enable_peer`).
[[nodiscard]] std::vector<flow_stamps> run_flows(std::vector<flow*> const& flows,
                                                 run_plan const& plan,
                                                 interruption const& interrupted);

}  // namespace pyxfer
