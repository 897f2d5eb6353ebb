#include "copy/timed.hpp"

#include "copy/gate.hpp"
#include "cuda/bracket.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"

namespace pyxfer {
namespace {

/// Queueing twenty copies takes about 100 us. A host that takes this long was not running.
constexpr double gate_timeout_s = 1.0;

constexpr char const* the_copy = "a copy";

/// It is waited for before a copy that the host paces. A late start stamp would make the copy look
/// shorter than it is.
constexpr char const* idle_event = "an event on an idle stream";

}  // namespace

sample time_gated(bench& streams, issue_mode mode, lane const& along, window_plan plan) {
  device_guard const guard{streams.device()};
  auto& start = streams.mark(bench::start_mark);
  auto& stop = streams.mark(bench::stop_mark);
  drain_guard drained{streams};
  gate entrance{streams.on(0), gate_timeout_s};

  streams.fork(streams.mark(bench::fork_mark));
  issue(streams, mode, along.shortened(plan.untimed_bytes), plan.first_slot, plan.warmups);
  streams.join();
  start.record(streams.on(0));
  streams.fork(streams.mark(bench::fork_mark));
  auto const called = host_clock::now();
  issue(streams, mode, along, plan.first_slot + plan.warmups, plan.copies);
  auto const returned = host_clock::now();
  streams.join();
  stop.record(streams.on(0));
  entrance.open();
  wait(stop, streams.limit(), the_copy);
  drained.done();

  auto const copies = static_cast<double>(plan.copies);
  return {stop.seconds_since(start) / copies, seconds_between(called, returned) / copies,
          std::nullopt, plan.copies,
          entrance.timed_out() ? "the gate timed out before everything was queued" : ""};
}

sample time_issued(bench& streams, std::size_t copies, std::function<void()> const& issue) {
  device_guard const guard{streams.device()};
  auto& start = streams.mark(bench::start_mark);
  auto& stop = streams.mark(bench::stop_mark);
  drain_guard drained{streams};

  start.record(streams.on(0));
  wait(start, streams.limit(), idle_event);
  // The other streams need not wait for the start: it has passed.
  auto const called = host_clock::now();
  issue();
  auto const returned = host_clock::now();
  streams.join();
  stop.record(streams.on(0));
  wait(stop, streams.limit(), the_copy);
  auto const finished = host_clock::now();
  drained.done();

  auto const count = static_cast<double>(copies);
  return {stop.seconds_since(start) / count, seconds_between(called, returned) / count,
          seconds_between(called, finished) / count, copies, ""};
}

sample time_on_stream(bench& streams, issue_mode mode, lane const& along, std::size_t first,
                      std::size_t copies) {
  return time_issued(streams, copies, [&] { issue(streams, mode, along, first, copies); });
}

sample time_drained(bench& streams, std::function<void()> const& copy) {
  device_guard const guard{streams.device()};
  auto& start = streams.mark(bench::start_mark);
  auto& stop = streams.mark(bench::stop_mark);
  drain_guard drained{streams};

  PYXFER_TRY(cudaDeviceSynchronize());
  start.record(streams.on(0));
  auto const called = host_clock::now();
  copy();
  auto const returned = host_clock::now();
  PYXFER_TRY(cudaDeviceSynchronize());
  auto const finished = host_clock::now();
  stop.record(streams.on(0));
  wait(stop, streams.limit(), the_copy);
  drained.done();

  auto const elapsed = stop.seconds_since(start);
  auto const wall = seconds_between(called, finished);
  return {elapsed, seconds_between(called, returned), wall, 1, drained_fault(elapsed, wall)};
}

sample time_drained(bench& streams, lane const& along, std::size_t slot) {
  return time_drained(streams, [&] { copy_blocking(along, slot); });
}

}  // namespace pyxfer
