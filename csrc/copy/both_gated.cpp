#include "copy/both.hpp"
#include "copy/gate.hpp"
#include "copy/issue.hpp"
#include "cuda/device.hpp"

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

side_events events_of(bench& with, std::size_t side) {
  auto const base = bench::side_marks + 4 * side;
  return {with.mark(base), with.mark(base + 1), with.mark(base + 2), with.mark(base + 3)};
}

/// Queue one side; returns the seconds that queueing its window took the host.
double queue_side(bench& with, std::size_t side, lane const& along, both_plan const& plan) {
  auto const on = with.on(side);
  auto const events = events_of(with, side);
  std::size_t turn = plan.first_slot;
  auto const queue = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) { copy_async(along, turn++, on); }
  };
  events.first.record(on);
  queue(plan.warmups);
  events.start.record(on);
  auto const called = host_clock::now();
  queue(plan.copies);
  auto const returned = host_clock::now();
  events.stop.record(on);
  queue(plan.tails.at(side));
  events.last.record(on);
  return seconds_between(called, returned);
}

/// Empty where `other` was busy during the whole window of `mine`.
char const* overlap_fault(side_events const& mine, side_events const& other) {
  if (mine.start.seconds_since(other.first) < 0) { return "the other direction began later"; }
  if (other.last.seconds_since(mine.stop) < 0) { return "the other direction ended earlier"; }
  return "";
}

}  // namespace

both_samples time_both_gated(bench& with, both_lanes const& along, both_plan plan) {
  device_guard const guard{with.device()};
  drain_guard drained{with};
  // One gate, because the driver runs host functions one at a time, and then a meeting, so that
  // neither side begins alone.
  gate entrance{with.on(0), gate_timeout_s};
  with.meet();
  std::array<double, 2> const dispatch{queue_side(with, 0, along[0], plan),
                                       queue_side(with, 1, along[1], plan)};
  entrance.open();
  auto const h2d = events_of(with, 0);
  auto const d2h = events_of(with, 1);
  wait(h2d.last, with.limit(), "the h2d side of a copy both ways");
  wait(d2h.last, with.limit(), "the d2h side of a copy both ways");
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

}  // namespace pyxfer
