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

void modelled_links::set(direction_model h2d, direction_model d2h) {
  std::scoped_lock const lock{mutex_};
  h2d_.fill({h2d, {}});
  d2h_.fill({d2h, {}});
}

void modelled_links::set_of(int device, direction_model h2d, direction_model d2h) {
  std::scoped_lock const lock{mutex_};
  h2d_.at(static_cast<std::size_t>(device)) = {h2d, {}};
  d2h_.at(static_cast<std::size_t>(device)) = {d2h, {}};
}

void modelled_links::set_pair(copy_path path, direction_model model) {
  std::scoped_lock const lock{mutex_};
  pairs_[{path.from, path.to}] = {model, {}};
}

void modelled_links::set_issue(issue_model const& model) {
  std::scoped_lock const lock{mutex_};
  issue_ = model;
}

void modelled_links::issue(std::size_t descriptors) {
  auto const model = [this] {
    std::scoped_lock const lock{mutex_};
    return issue_;
  }();
  auto const busy_s = model.call_s + static_cast<double>(descriptors) * model.descriptor_s;
  if (busy_s <= 0) return;
  auto const epoch = epoch_of(this_thread().device);
  pause_until(steady::now() + as_duration(busy_s), [&] { return !is_current(epoch); });
}

void modelled_links::reset() {
  std::scoped_lock const lock{mutex_};
  h2d_.fill({});
  d2h_.fill({});
  pairs_.clear();
  issue_ = {};
}

/// Whether a copy between devices, or inside one, has an engine of its own.
bool modelled_links::is_direct(copy_path path) const {
  auto const between = path.from != host && path.to != host;
  // Either side may issue the copy, so access in one direction is enough.
  return between && pairs_.count({path.from, path.to}) != 0 &&
         (peers().allowed(path.from, path.to) || peers().allowed(path.to, path.from));
}

std::vector<modelled_links::engine*> modelled_links::engines_of(copy_path path) {
  if (is_direct(path)) return {&pairs_.at({path.from, path.to})};
  if (path.from == path.to) return {};
  std::vector<engine*> found;
  if (path.from != host) found.push_back(&d2h_.at(static_cast<std::size_t>(path.from)));
  if (path.to != host) found.push_back(&h2d_.at(static_cast<std::size_t>(path.to)));
  return found;
}

std::optional<crossing> modelled_links::occupy(copy_path path, std::size_t bytes, bool first,
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
  return crossing{begin, end};
}

modelled_links& link() {
  static auto& the_links = *new modelled_links;
  return the_links;
}

}  // namespace pyxfer::hostrt
