#include "copy/both.hpp"

#include "copy/gate.hpp"
#include "copy/timed.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"

#include <array>
#include <atomic>
#include <exception>
#include <thread>

namespace pyxfer {
namespace {

constexpr double gate_timeout_s = 1.0;

/// The four events of one side, in the order in which its stream passes them.
struct side_events {
  event& first;
  event& start;
  event& stop;
  event& last;
};

side_events events_of(bench& streams, std::size_t side) {
  auto const base = bench::side_marks + 4 * side;
  return {streams.mark(base), streams.mark(base + 1), streams.mark(base + 2),
          streams.mark(base + 3)};
}

/// Queues one side, and returns the host's time for queueing its window, in seconds.
double queue_side(bench& streams, std::size_t side, lane const& along, both_plan const& plan) {
  auto const on = streams.on(side);
  auto const events = events_of(streams, side);
  auto const untimed = along.shortened(plan.untimed_bytes);
  std::size_t turn = plan.first_slot;
  auto const queue = [&](lane const& each, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) { copy_async(each, turn++, on); }
  };
  events.first.record(on);
  queue(untimed, plan.warmups);
  events.start.record(on);
  auto const called = host_clock::now();
  queue(along, plan.copies);
  auto const returned = host_clock::now();
  events.stop.record(on);
  queue(untimed, plan.tails.at(side));
  events.last.record(on);
  return seconds_between(called, returned);
}

/// Empty if `other` was busy during the whole window of `mine`.
char const* overlap_fault(side_events const& mine, side_events const& other) {
  if (mine.start.seconds_since(other.first) < 0) { return "the other direction began later"; }
  if (other.last.seconds_since(mine.stop) < 0) { return "the other direction ended earlier"; }
  return "";
}

/// A side gives up waiting for the other after this many windows.
constexpr std::size_t most_rounds = 64;

constexpr char const* one_side = "one side of a copy both ways";

/// State that the two threads share.
struct start_barrier {
  std::atomic<int> arrived{0};
  std::atomic<int> finished{0};
  std::atomic<bool> broken{false};
  std::array<std::atomic<bool>, 2> left_alone{};

  void wait_for_both() {
    ++arrived;
    while (arrived.load() < 2 && !broken.load()) { std::this_thread::yield(); }
  }
  [[nodiscard]] bool over() const { return finished.load() == 2 || broken.load(); }
};

sample run_side(bench& streams, std::size_t side, lane const& along, std::size_t copies,
                std::size_t first_slot, start_barrier& shared) {
  device_guard const guard{streams.device()};
  auto const on = streams.on(side);
  auto& start = streams.mark(bench::side_marks + 4 * side);
  auto& stop = streams.mark(bench::side_marks + 4 * side + 1);
  auto& last = streams.mark(bench::side_marks + 4 * side + 2);
  auto turn = first_slot;
  auto const copy_until = [&](std::size_t until, auto const& ended) {
    while (turn < until && !ended()) { copy_async(along, turn++, on); }
  };
  auto const cancelled = [&] { return streams.limit().cancelled(); };

  shared.wait_for_both();
  start.record(on);
  wait(start, streams.limit(), "an event on an idle stream");  // as in time_on_stream
  auto const called = host_clock::now();
  copy_until(first_slot + copies, cancelled);
  auto const returned = host_clock::now();
  if (turn < first_slot + copies) {
    throw cancelled_error(std::string{"cancelled during "} + one_side);
  }
  stop.record(on);
  ++shared.finished;
  copy_until(first_slot + copies * most_rounds, [&] { return shared.over() || cancelled(); });
  shared.left_alone.at(1 - side) = !shared.over();
  last.record(on);
  wait(last, streams.limit(), one_side);  // the caller may free the memory when this returns
  auto const count = static_cast<double>(copies);
  return {stop.seconds_since(start) / count, seconds_between(called, returned) / count,
          std::nullopt, copies, ""};
}

}  // namespace

both_samples time_both_gated(bench& streams, both_lanes const& along, both_plan plan) {
  device_guard const guard{streams.device()};
  drain_guard drained{streams};
  // There is one gate, because the driver runs host functions one at a time. Behind it the streams
  // wait for each other, so that neither side begins alone.
  gate entrance{streams.on(0), gate_timeout_s};
  streams.meet();
  std::array<double, 2> const dispatch{queue_side(streams, 0, along[0], plan),
                                       queue_side(streams, 1, along[1], plan)};
  entrance.open();
  auto const h2d = events_of(streams, 0);
  auto const d2h = events_of(streams, 1);
  wait(h2d.last, streams.limit(), "the h2d side of a copy both ways");
  wait(d2h.last, streams.limit(), "the d2h side of a copy both ways");
  drained.done();

  auto const copies = static_cast<double>(plan.copies);
  auto const side = [&](side_events const& mine, side_events const& other, double seconds) {
    std::string const fault = entrance.timed_out()
                                  ? "the gate timed out before everything was queued"
                                  : overlap_fault(mine, other);
    return sample{mine.stop.seconds_since(mine.start) / copies, seconds / copies, std::nullopt,
                  plan.copies, fault};
  };
  return {side(h2d, d2h, dispatch[0]), side(d2h, h2d, dispatch[1])};
}

sample time_both_issued(bench& streams, both_lanes const& along, std::size_t copies,
                        std::size_t first_slot) {
  return time_issued(streams, copies, [&] {
    for (std::size_t i = 0; i < copies; ++i) {
      copy_async(along[0], first_slot + i, streams.on(0));
      copy_async(along[1], first_slot + i, streams.on(1));
    }
  });
}

both_samples time_both_threads(bench& streams, both_lanes const& along, std::size_t copies,
                               std::size_t first_slot) {
  device_guard const guard{streams.device()};  // first: if it fails there is nothing to drain
  drain_guard drained{streams};
  start_barrier shared;
  both_samples samples{};
  std::array<std::exception_ptr, 2> faults{};
  auto const run = [&](std::size_t side) {
    try {
      samples.at(side) = run_side(streams, side, along.at(side), copies, first_slot, shared);
    } catch (...) {
      faults.at(side) = std::current_exception();
      shared.broken = true;
    }
  };
  auto other = start_thread("pyxfer-both", [&] { run(1); });
  run(0);
  other.join();
  for (auto const& fault : faults) {
    if (fault) { std::rethrow_exception(fault); }
  }
  drained.done();
  for (std::size_t side = 0; side < samples.size(); ++side) {
    if (shared.left_alone.at(side)) {
      samples.at(side).invalid = "the other direction ended earlier";
    }
  }
  return samples;
}

}  // namespace pyxfer
