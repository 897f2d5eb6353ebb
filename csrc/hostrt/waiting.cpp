#include "waiting.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "device.hpp"
#include "entry.hpp"

namespace pyxfer::hostrt {
namespace {

/// The kernel of a busy virtual machine may wake a sleeping thread this late, which would show in
/// the times of a modelled link.
constexpr std::chrono::microseconds late_limit{150};

struct alarm_bell {
  std::mutex mutex;
  std::condition_variable rung;
};

// Never destroyed, because worker threads may still pause during static destruction.
alarm_bell& bell() {
  static auto& the_bell = *new alarm_bell;
  return the_bell;
}

}  // namespace

void pause_until(steady::time_point deadline, std::function<bool()> const& ended) {
  {
    std::unique_lock lock{bell().mutex};
    bell().rung.wait_until(lock, deadline - late_limit, ended);
  }
  while (!ended() && steady::now() < deadline) std::this_thread::yield();
}

void wake_pauses() {
  std::scoped_lock const lock{bell().mutex};
  bell().rung.notify_all();
}

steady::duration as_duration(double seconds) noexcept {
  constexpr double longest_s = 1e6;
  std::chrono::duration<double> const wanted{std::clamp(seconds, 0.0, longest_s)};
  return std::chrono::duration_cast<steady::duration>(wanted);
}

namespace {

std::atomic<std::uint64_t> current_generation{0};

}  // namespace

ordered_delay::ordered_delay(double seconds) : seconds_{seconds}, generation_{current_generation} {}

steady::time_point ordered_delay::serve(steady::time_point ready) const {
  if (seconds_ <= 0) return ready;
  auto const epoch = epoch_of(this_thread().device);
  pause_until(steady::now() + as_duration(seconds_),
              [this, &epoch] { return generation_ != current_generation || !is_current(epoch); });
  return steady::now();
}

void end_delays() {
  ++current_generation;
  wake_pauses();
}

}  // namespace pyxfer::hostrt
