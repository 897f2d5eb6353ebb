#include "links/flow_runner.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"

#include <algorithm>
#include <sstream>
#include <thread>

namespace pyxfer {
namespace {

/// As in copy/bench.cpp.
constexpr double drain_s = 0.5;

/// The queue of a flow covers a nap, and a thread that only spins would take the driver's locks
/// from the other threads of its device.
constexpr double spin_s = 50e-6;
constexpr std::chrono::microseconds nap{50};

/// Between two items of a pace. The thread notices so soon that the run has ended.
constexpr double longest_sleep_s = 0.01;

[[noreturn]] void throw_timeout(double seconds) {
  std::ostringstream text;
  text << "The device did not finish an item of a flow within " << seconds
       << " s. Another program may hold it, or it has hung: look at nvidia-smi and for Xid in "
          "dmesg.";
  throw timeout_error(text.str());
}

}  // namespace

void flow_runner::run(start_together& others) {
  device_guard const guard{flow_.plan().device};
  auto const first = flow_.plan().pace_bytes_per_s > 0 ? 1 : flow_.plan().depth;
  for (std::size_t i = 0; i < first; ++i) { issue(); }
  if (others.wait_for_all()) { issue_until_end(others); }
}

void flow_runner::issue_until_end(start_together const& others) {
  auto const opened = others.opened_at();
  polling rest{spin_s, nap};
  for (auto ending = false; !ending || in_flight() > 0;) {
    ending =
        ending || others.ended() || seconds_between(opened, host_clock::now()) >= plan_.seconds;
    auto const early_s = due_s() - seconds_between(opened, host_clock::now());
    auto const issues = !ending && in_flight() < flow_.plan().depth && early_s <= 0;
    if (issues) { issue(); }
    auto const takes = in_flight() > 0 && oldest_has_ended();
    if (takes) { take_oldest(); }
    if (issues || takes || in_flight() == 0) { rest = polling{spin_s, nap}; }
    auto const limit = others.ended() ? std::min(plan_.deadline_s, drain_s) : plan_.deadline_s;
    if (rest.waited_s() > limit) { throw_timeout(limit); }
    if (issues || takes) { continue; }
    if (in_flight() == 0 && early_s > spin_s) {
      auto const sleep_s = std::min({early_s - spin_s, plan_.seconds, longest_sleep_s});
      std::this_thread::sleep_for(std::chrono::duration<double>{sleep_s});
    } else {
      rest.pause();
    }
  }
}

/// When the next item is due, in seconds from the opening. A flow that fell behind its pace catches
/// up.
double flow_runner::due_s() const {
  auto const pace = flow_.plan().pace_bytes_per_s;
  if (pace <= 0) { return 0; }
  return static_cast<double>(issued_) * static_cast<double>(flow_.plan().bytes) / pace;
}

/// Whether the stream has nothing to do. If not, the next item begins when the last one ends.
bool flow_runner::has_run_dry() {
  return in_flight() == 0 || flow_.end_mark(place_of(issued_ - 1)).passed();
}

bool flow_runner::oldest_has_ended() { return flow_.end_mark(place_of(ended_)).passed(); }

void flow_runner::issue() {
  auto const place = place_of(issued_);
  // The first item begins behind the gate.
  auto const marked = has_run_dry();
  with_begin_[place] = marked;
  if (marked) { flow_.begin_mark(place).record(flow_.on()); }
  flow_.issue(place, issued_);
  flow_.end_mark(place).record(flow_.on());
  ++issued_;
}

void flow_runner::take_oldest() {
  auto const place = place_of(ended_);
  auto const begin =
      with_begin_[place] ? clock_.host_ns(flow_.begin_mark(place)) : stamps_.end_ns.back();
  stamps_.begin_ns.push_back(begin);
  stamps_.end_ns.push_back(clock_.host_ns(flow_.end_mark(place)));
  if (flow_.plan().engine == flow_engine::chase) { take_result(place); }
  ++ended_;
}

void flow_runner::take_result(std::size_t place) {
  auto const& found = flow_.result(place);
  // The device has written it; the compiler must not have read it before the event had passed.
  auto const ran = __atomic_load_n(&found.ran, __ATOMIC_ACQUIRE) != 0;
  stamps_.kernel_ns.push_back(static_cast<double>(found.nanoseconds));
  stamps_.cycles.push_back(found.cycles);
  stamps_.multiprocessor.push_back(ran ? found.multiprocessor : -1);
}

bool flow_runner::leave(host_clock::time_point limit) noexcept {
  try {
    device_guard const guard{flow_.plan().device};
    auto& last = flow_.end_mark(0);
    last.record(flow_.on());
    if (wait_for(last, seconds_between(host_clock::now(), limit))) { return true; }
  } catch (device_lost_error const&) { return true; } catch (std::exception const& error) {
    note_cleanup_failure(error);
  }
  flow_.mark_stuck();
  return false;
}

}  // namespace pyxfer
