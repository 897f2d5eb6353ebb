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

void ordered_delay::serve() const {
  if (seconds_ <= 0) return;
  pause_until(steady::now() + as_duration(seconds_),
              [this] { return generation_ != current_generation || epoch_ != loss_epoch(); });
}

void end_delays() {
  ++current_generation;
  wake_pauses();
}

}  // namespace pyxfer::hostrt
