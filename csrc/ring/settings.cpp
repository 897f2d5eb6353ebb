#include "ring/settings.hpp"

#include <stdexcept>
#include <string>

namespace pyxfer {
namespace {

void require(char const* what, long long least, long long most, long long given) {
  if (given >= least && given <= most) { return; }
  throw std::invalid_argument(std::string{"a ring has "} + std::to_string(least) + " to " +
                              std::to_string(most) + " " + what + ", and not " +
                              std::to_string(given));
}

}  // namespace

void validate(ring_settings const& made) {
  require("threads", 1, most_ring_threads, made.threads);
  require("slots", least_ring_slots, most_ring_slots, made.slots);
  require("microseconds to spin", 0, most_spin_us, made.spin_us);
  require("bytes to go directly", 0, static_cast<long long>(most_chunk_bytes),
          static_cast<long long>(made.direct_bytes));
  auto const size = made.chunk_bytes;
  if (size < least_chunk_bytes || size > most_chunk_bytes || (size & (size - 1)) != 0) {
    throw std::invalid_argument(
        "a ring has chunks of 4096 to 67108864 bytes, a power of two, and not of " +
        std::to_string(static_cast<long long>(size)));
  }
}

}  // namespace pyxfer
