#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <mutex>
#include <optional>

#include "control.hpp"
#include "injection.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {

/// When a copy has an engine to itself.
struct crossing {
  steady::time_point begin;
  steady::time_point end;
};

/// The modelled link: one copy engine a device and direction, each doing one copy after the other.
class modelled_link {
 public:
  void set(direction_model h2d, direction_model d2h);

  /// Reserves the engine of that direction from `ready` on; nothing where the direction is not
  /// modelled. `first` of a submission bears its latency.
  [[nodiscard]] std::optional<crossing> occupy(int device, cudaMemcpyKind kind, std::size_t bytes,
                                               bool first, steady::time_point ready);

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
