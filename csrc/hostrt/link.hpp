#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <mutex>

#include "control.hpp"
#include "injection.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {

/// The modelled link: one copy engine a device and direction, each doing one copy after the other.
class modelled_link {
 public:
  void set(direction_model h2d, direction_model d2h);

  /// Reserves the engine of that direction and returns when the copy will have arrived; in the past
  /// where the direction is not modelled. `first` of a submission bears its latency.
  [[nodiscard]] steady::time_point occupy(int device, cudaMemcpyKind kind, std::size_t bytes,
                                          bool first);

 private:
  struct direction {
    direction_model model{0, 0};
    std::array<steady::time_point, max_devices> free_at{};
  };

  std::mutex mutex_;
  direction h2d_;
  direction d2h_;
};

[[nodiscard]] modelled_link& link();

}  // namespace pyxfer::hostrt
