#include "copy/both.hpp"
#include "copy/issue.hpp"
#include "cuda/device.hpp"

#include <atomic>
#include <exception>
#include <thread>

namespace pyxfer {
namespace {

/// A side this much faster than the other gives up waiting for it.
constexpr std::size_t most_rounds = 64;

/// What the two threads share.
struct meeting {
  std::atomic<int> arrived{0};
  std::atomic<int> finished{0};
  std::atomic<bool> broken{false};

  void wait_for_both() {
    ++arrived;
    while (arrived.load() < 2 && !broken.load()) { std::this_thread::yield(); }
  }
  [[nodiscard]] bool over() const { return finished.load() == 2 || broken.load(); }
};

sample run_side(bench& with, std::size_t side, lane const& along, std::size_t copies,
                std::size_t first_slot, meeting& shared) {
  device_guard const guard{with.device()};
  auto const on = with.on(side);
  auto& start = with.mark(bench::side_marks + 4 * side);
  auto& stop = with.mark(bench::side_marks + 4 * side + 1);
  shared.wait_for_both();
  start.record(on);
  wait(start, with.limit(), "an event on an idle stream");  // as in time_on_stream
  auto const called = host_clock::now();
  auto returned = called;
  for (std::size_t i = 0; i < copies * most_rounds; ++i) {
    copy_async(along, first_slot + i, on);
    if (i + 1 == copies) {
      returned = host_clock::now();
      stop.record(on);
      ++shared.finished;
    }
    if (i + 1 >= copies && shared.over()) { break; }
    if (with.limit().cancelled()) { break; }
  }
  bool const alone = !shared.over();
  wait(stop, with.limit(), "one side of a copy both ways");
  auto const count = static_cast<double>(copies);
  return {stop.seconds_since(start) / count, seconds_between(called, returned) / count,
          std::nullopt, copies, alone ? "the other direction was much slower, and ran on alone" : ""};
}

}  // namespace

both_samples time_both_threads(bench& with, both_lanes const& along, std::size_t copies,
                               std::size_t first_slot) {
  drain_guard drained{with};
  meeting shared;
  both_samples samples{};
  std::array<std::exception_ptr, 2> faults{};
  auto const run = [&](std::size_t side) {
    try {
      samples.at(side) = run_side(with, side, along.at(side), copies, first_slot, shared);
    } catch (...) {
      faults.at(side) = std::current_exception();
      shared.broken = true;
    }
  };
  std::thread other{run, 1};
  run(0);
  other.join();
  for (auto const& fault : faults) {
    if (fault) { std::rethrow_exception(fault); }
  }
  drained.done();
  return samples;
}

}  // namespace pyxfer
