#include "link.hpp"

#include <algorithm>

#include "device.hpp"
#include "entry.hpp"
#include "peer.hpp"

namespace pyxfer::hostrt {
namespace {

constexpr int host = -1;

double seconds_for(std::size_t bytes, double bytes_per_s) {
  return bytes_per_s > 0 ? static_cast<double>(bytes) / bytes_per_s : 0.0;
}

}  // namespace

void modelled_links::set(copy_path path, direction_model model) {
  std::scoped_lock const lock{mutex_};
  engines_[{path.from, path.to}] = {model, {}};
}

void modelled_links::reset() {
  std::scoped_lock const lock{mutex_};
  engines_.clear();
}

std::vector<modelled_links::engine*> modelled_links::engines_of(copy_path path) {
  auto const [from, to] = path;
  auto const between = from != host && to != host;
  if (between && engines_.count({from, to}) != 0 && copies_directly(from, to)) {
    return {&engines_.at({from, to})};
  }
  if (from == to) return {};
  std::vector<engine*> found;
  if (from != host) found.push_back(&engines_[{from, host}]);
  if (to != host) found.push_back(&engines_[{host, to}]);
  return found;
}

std::optional<activity_span> modelled_links::occupy(copy_path path, std::size_t bytes, bool first,
                                                    steady::time_point ready) {
  std::scoped_lock const lock{mutex_};
  auto const used = engines_of(path);
  auto begin = ready;
  for (auto const* each : used) begin = std::max(begin, each->free_at);
  auto end = begin;
  for (auto const* each : used) {
    auto const [bytes_per_s, latency_s] = each->model;
    auto const busy_s = seconds_for(bytes, bytes_per_s) + (first ? latency_s : 0.0);
    end = std::max(end, begin + as_duration(busy_s));
  }
  if (end == begin) return std::nullopt;
  for (auto* each : used) each->free_at = end;
  return activity_span{begin, end};
}

modelled_links& link() {
  static auto& the_links = *new modelled_links;
  return the_links;
}

}  // namespace pyxfer::hostrt
