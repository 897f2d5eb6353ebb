#include "delay.hpp"

#include <atomic>

#include "loss.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {
namespace {

std::atomic<std::uint64_t> current_generation{0};

}  // namespace

ordered_delay::ordered_delay(double seconds)
    : seconds_{seconds}, generation_{current_generation}, epoch_{loss_epoch()} {}

steady::time_point ordered_delay::serve(steady::time_point ready) const {
  if (seconds_ <= 0) return ready;
  pause_until(steady::now() + as_duration(seconds_),
              [this] { return generation_ != current_generation || epoch_ != loss_epoch(); });
  return steady::now();
}

void end_delays() {
  ++current_generation;
  wake_pauses();
}

}  // namespace pyxfer::hostrt
