#include "link.hpp"

#include <algorithm>

namespace pyxfer::hostrt {

void modelled_link::set(direction_model h2d, direction_model d2h) {
  std::scoped_lock const lock{mutex_};
  h2d_ = {h2d, {}};
  d2h_ = {d2h, {}};
}

std::optional<crossing> modelled_link::occupy(int device, cudaMemcpyKind kind, std::size_t bytes,
                                              bool first, steady::time_point ready) {
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToHost) return std::nullopt;
  std::scoped_lock const lock{mutex_};
  auto& used = kind == cudaMemcpyHostToDevice ? h2d_ : d2h_;
  auto const [bytes_per_s, latency_s] = used.model;
  auto const crossing_s = bytes_per_s > 0 ? static_cast<double>(bytes) / bytes_per_s : 0.0;
  auto const busy_s = crossing_s + (first ? latency_s : 0.0);
  if (busy_s <= 0) return std::nullopt;
  auto& free_at = used.free_at.at(static_cast<std::size_t>(device));
  auto const begin = std::max(free_at, ready);
  free_at = begin + as_duration(busy_s);
  return crossing{begin, free_at};
}

modelled_link& link() {
  static auto& the_link = *new modelled_link;
  return the_link;
}

}  // namespace pyxfer::hostrt
