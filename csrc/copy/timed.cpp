#include "copy/timed.hpp"

#include "copy/gate.hpp"
#include "cuda/bracket.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace pyxfer {
namespace {

/// Queueing twenty copies takes about 100 us. A host that takes this long was not running.
constexpr double gate_timeout_s = 1.0;

constexpr char const* the_copy = "a copy";

/// It is waited for before a copy that the host paces. A late start stamp would make the copy look
/// shorter than it is.
constexpr char const* idle_event = "an event on an idle stream";

/// Parts are multiples of 4 KiB, because a copy engine is slower from an unaligned address.
constexpr std::size_t part_alignment = 4096;

void copy_split(bench& streams, lane const& along, std::size_t turn) {
  auto const width = streams.width();
  auto const even = (along.bytes + width - 1) / width;
  auto const part = (even + part_alignment - 1) / part_alignment * part_alignment;
  auto* const to = static_cast<char*>(along.destination(turn));
  auto const* const from = static_cast<char const*>(along.source(turn));
  for (std::size_t i = 0; i < width && i * part < along.bytes; ++i) {
    auto const bytes = std::min(part, along.bytes - i * part);
    PYXFER_TRY(cudaMemcpyAsync(to + i * part, from + i * part, bytes, kind_of(along),
                               streams.on(i).handle()));
  }
}

void copy_batch(bench& streams, lane const& along, std::size_t first, std::size_t count) {
  std::vector<void*> to(count);
  std::vector<void*> from(count);
  std::vector<std::size_t> sizes(count, along.bytes);
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = along.destination(first + i);
    from[i] = along.source(first + i);
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t from_index = 0;
#if CUDART_VERSION >= 13000
  PYXFER_TRY(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count, &attributes,
                                  &from_index, 1, streams.on(0).handle()));
#else
  std::size_t failed_at = 0;
  PYXFER_TRY(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count, &attributes,
                                  &from_index, 1, &failed_at, streams.on(0).handle()));
#endif
}

}  // namespace

issue_mode issue_mode_of(std::string const& word) {
  if (word == "async") { return issue_mode::async; }
  if (word == "split") { return issue_mode::split; }
  if (word == "batch") { return issue_mode::batch; }
  throw std::invalid_argument("unknown way to issue copies: \"" + word + "\"");
}

void issue(bench& streams, issue_mode mode, lane const& along, std::size_t first,
           std::size_t count) {
  if (count == 0) { return; }
  if (mode == issue_mode::batch) {
    copy_batch(streams, along, first, count);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (mode == issue_mode::split) {
      copy_split(streams, along, first + i);
    } else {
      copy_async(along, first + i, streams.on(0));
    }
  }
}

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
