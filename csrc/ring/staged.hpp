#pragma once

#include <cstddef>

namespace pyxfer {

/// What one transfer through a ring took. The last two are sums over its threads.
struct staged {
  double wall_s;  ///< from the start of its turn to its end
  std::size_t chunks;
  std::size_t copies;  ///< of the engine, each of one chunk or of several
  int threads;         ///< that had a chunk
  double waited_s;     ///< for the device, to use a slot again or to see it full
  double filled_s;     ///< copying between slots and the array
};

}  // namespace pyxfer
