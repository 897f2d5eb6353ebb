#include "synchronize.hpp"

#include <algorithm>

#include "loss.hpp"

namespace pyxfer::hostrt {

cudaError_t synchronize(std::vector<stream_point> const& points) {
  for (auto const& point : points) point.wait();
  if (!device_lost()) return cudaSuccess;
  await_last_touch();
  return loss_code();
}

cudaError_t query(std::vector<stream_point> const& points) {
  auto const reached = std::all_of(points.begin(), points.end(),
                                   [](stream_point const& point) { return point.reached(); });
  return reached ? cudaSuccess : cudaErrorNotReady;
}

}  // namespace pyxfer::hostrt
