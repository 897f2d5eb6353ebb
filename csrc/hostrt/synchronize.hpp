#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "stream.hpp"

namespace pyxfer::hostrt {

/// Waits for every point. With the device lost it returns at once with that code, when nothing
/// touches a caller's memory any more.
[[nodiscard]] cudaError_t synchronize(std::vector<stream_point> const& points);

/// Success or not ready, without waiting.
[[nodiscard]] cudaError_t query(std::vector<stream_point> const& points);

}  // namespace pyxfer::hostrt
