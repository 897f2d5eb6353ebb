#include "copy/both.hpp"
#include "copy/issue.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/threads.hpp"

#include <array>
#include <atomic>
#include <exception>
#include <thread>

namespace pyxfer {
namespace {

/// A side gives up waiting for the other after this many windows.
constexpr std::size_t most_rounds = 64;

constexpr char const* one_side = "one side of a copy both ways";

/// State that the two threads share.
struct meeting {
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
                std::size_t first_slot, meeting& shared) {
  device_guard const guard{streams.device()};
  auto const on = streams.on(side);
  auto& start = streams.mark(bench::side_marks + 4 * side);
  auto& stop = streams.mark(bench::side_marks + 4 * side + 1);
  auto turn = first_slot;
  auto const copy_until = [&](std::size_t last, auto const& ended) {
    while (turn < last && !ended()) { copy_async(along, turn++, on); }
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
  wait(stop, streams.limit(), one_side);
  auto const count = static_cast<double>(copies);
  return {stop.seconds_since(start) / count, seconds_between(called, returned) / count,
          std::nullopt, copies, ""};
}

}  // namespace

both_samples time_both_threads(bench& streams, both_lanes const& along, std::size_t copies,
                               std::size_t first_slot) {
  device_guard const guard{streams.device()};  // first: if it fails there is nothing to drain
  drain_guard drained{streams};
  meeting shared;
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
