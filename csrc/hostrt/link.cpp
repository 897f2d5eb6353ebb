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

using copy_count = std::shared_ptr<std::atomic<int>>;

/// Counts a copy for as long as it lives.
class queued_copy {
 public:
  explicit queued_copy(std::vector<copy_count> counts) : counts_{std::move(counts)} {
    for (auto const& each : counts_) ++*each;
  }
  queued_copy(queued_copy const&) = delete;
  queued_copy& operator=(queued_copy const&) = delete;
  ~queued_copy() {
    for (auto const& each : counts_) --*each;
  }

 private:
  std::vector<copy_count> counts_;
};

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

void modelled_links::add_uplink(std::vector<int> const& devices, uplink_model const& model) {
  std::scoped_lock const lock{mutex_};
  auto const side_of = [&](double bytes_per_s) {
    side made;
    made.bytes_per_s = bytes_per_s;
    for (auto const device : devices) made.copiers.emplace_back().device = device;
    return made;
  };
  uplinks_.push_back({model.h2d_beside_d2h_bytes_per_s, side_of(model.h2d_bytes_per_s),
                      side_of(model.d2h_bytes_per_s)});
}

void modelled_links::set_hops(hop_model const& hops) {
  std::scoped_lock const lock{mutex_};
  hops_ = hops;
}

void modelled_links::reset() {
  std::scoped_lock const lock{mutex_};
  h2d_.fill({});
  d2h_.fill({});
  pairs_.clear();
  uplinks_.clear();
  hops_ = {};
}

/// Whether a copy between devices, or inside one, has an engine of its own.
bool modelled_links::is_direct(copy_path path) const {
  auto const between = path.from != host && path.to != host;
  // Either side may issue the copy, so access in one direction is enough.
  return between && pairs_.count({path.from, path.to}) != 0 &&
         (has_peer_access(path.from, path.to) || has_peer_access(path.to, path.from));
}

std::vector<modelled_links::engine*> modelled_links::engines_of(copy_path path) {
  if (is_direct(path)) return {&pairs_.at({path.from, path.to})};
  if (path.from == path.to) return {};
  std::vector<engine*> found;
  if (path.from != host) found.push_back(&d2h_.at(static_cast<std::size_t>(path.from)));
  if (path.to != host) found.push_back(&h2d_.at(static_cast<std::size_t>(path.to)));
  return found;
}

modelled_links::copier* modelled_links::side::of(int device) {
  auto const found = std::find_if(copiers.begin(), copiers.end(),
                                  [=](copier const& each) { return each.device == device; });
  return found == copiers.end() ? nullptr : &*found;
}

std::ptrdiff_t modelled_links::side::beside(int device, steady::time_point at) const {
  return std::count_if(copiers.begin(), copiers.end(), [=](copier const& each) {
    return each.device != device && each.copies_at(at);
  });
}

std::vector<modelled_links::share> modelled_links::shares_of(copy_path path,
                                                             steady::time_point at) {
  std::vector<share> found;
  if (path.from == path.to || is_direct(path)) return found;
  auto const add = [&](side& on, int device, double bytes_per_s) {
    auto const copying = static_cast<double>(1 + on.beside(device, at));
    found.push_back({on.of(device), bytes_per_s / copying});
  };
  for (auto& each : uplinks_) {
    if (each.d2h.of(path.from) != nullptr) add(each.d2h, path.from, each.d2h.bytes_per_s);
    if (each.h2d.of(path.to) == nullptr) continue;
    auto const slower = each.h2d_beside_d2h_bytes_per_s;
    auto const loses = slower > 0 && each.d2h.beside(host, at) > 0;
    add(each.h2d, path.to, loses ? slower : each.h2d.bytes_per_s);
  }
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
  auto const shares = shares_of(path, begin);
  for (auto const& each : shares) {
    end = std::max(end, begin + as_duration(seconds_for(bytes, each.bytes_per_s)));
  }
  if (end == begin) return std::nullopt;
  for (auto const& each : shares) each.of->busy_until = end;
  for (auto* each : used) each->free_at = end;
  return crossing{begin, end};
}

std::shared_ptr<void const> modelled_links::queued(copy_path path) {
  std::scoped_lock const lock{mutex_};
  std::vector<copy_count> counts;
  for (auto const& each : shares_of(path, steady::now())) counts.push_back(each.of->queued);
  return counts.empty() ? nullptr : std::make_shared<queued_copy const>(std::move(counts));
}

std::optional<double> modelled_links::hop_s(copy_path path, double place, steady::time_point at) {
  std::scoped_lock const lock{mutex_};
  auto idle_s = path.from == path.to ? hops_.local_s : hops_.peer_s;
  if (path.from == host) idle_s = hops_.host_s;
  if (idle_s <= 0) return std::nullopt;
  auto const used = engines_of(path);
  auto const busy =
      std::any_of(used.begin(), used.end(), [&](engine const* each) { return each->free_at > at; });
  return idle_s + hops_.spread_s * place + (busy ? hops_.busy_s : 0.0);
}

modelled_links& link() {
  static auto& the_links = *new modelled_links;
  return the_links;
}

}  // namespace pyxfer::hostrt
