#include "copy/timed.hpp"

#include "copy/gate.hpp"
#include "cuda/bracket.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"

namespace pyxfer {
namespace {

/// Queueing twenty copies takes some 100 us; a host that needs this long was not running.
constexpr double gate_timeout_s = 1.0;

constexpr char const* the_copy = "a copy";

/// Waited for before a copy that the host itself paces: a late stamp would make the copy look
/// short.
constexpr char const* idle_event = "an event on an idle stream";

}  // namespace

sample time_gated(bench& with, issue_mode mode, lane const& along, window_plan plan) {
  device_guard const guard{with.device()};
  auto& start = with.mark(bench::start_mark);
  auto& stop = with.mark(bench::stop_mark);
  drain_guard drained{with};
  gate entrance{with.on(0), gate_timeout_s};

  with.fork(with.mark(bench::fork_mark));
  issue(with, mode, along, plan.first_slot, plan.warmups);
  with.join();
  start.record(with.on(0));
  with.fork(with.mark(bench::fork_mark));
  auto const called = host_clock::now();
  issue(with, mode, along, plan.first_slot + plan.warmups, plan.copies);
  auto const returned = host_clock::now();
  with.join();
  stop.record(with.on(0));
  entrance.open();
  wait(stop, with.limit(), the_copy);
  drained.done();

  auto const copies = static_cast<double>(plan.copies);
  return {stop.seconds_since(start) / copies, seconds_between(called, returned) / copies,
          std::nullopt, plan.copies,
          entrance.timed_out() ? "the gate timed out before everything was queued" : ""};
}

sample time_on_stream(bench& with, issue_mode mode, lane const& along, std::size_t slot) {
  device_guard const guard{with.device()};
  auto& start = with.mark(bench::start_mark);
  auto& stop = with.mark(bench::stop_mark);
  drain_guard drained{with};

  start.record(with.on(0));
  wait(start, with.limit(), idle_event);
  auto const called = host_clock::now();
  with.fork(with.mark(bench::fork_mark));
  issue(with, mode, along, slot, 1);
  auto const returned = host_clock::now();
  with.join();
  stop.record(with.on(0));
  wait(stop, with.limit(), the_copy);
  auto const finished = host_clock::now();
  drained.done();

  return {stop.seconds_since(start), seconds_between(called, returned),
          seconds_between(called, finished), 1, ""};
}

sample time_drained(bench& with, std::function<void()> const& copy) {
  device_guard const guard{with.device()};
  auto& start = with.mark(bench::start_mark);
  auto& stop = with.mark(bench::stop_mark);
  drain_guard drained{with};

  PYXFER_TRY(cudaDeviceSynchronize());
  start.record(with.on(0));
  auto const called = host_clock::now();
  copy();
  auto const returned = host_clock::now();
  PYXFER_TRY(cudaDeviceSynchronize());
  auto const finished = host_clock::now();
  stop.record(with.on(0));
  wait(stop, with.limit(), the_copy);
  drained.done();

  auto const elapsed = stop.seconds_since(start);
  auto const wall = seconds_between(called, finished);
  return {elapsed, seconds_between(called, returned), wall, 1, drained_fault(elapsed, wall)};
}

sample time_drained(bench& with, lane const& along, std::size_t slot) {
  return time_drained(with, [&] { copy_blocking(along, slot); });
}

}  // namespace pyxfer
