#include "memory_registry.hpp"

#include <iterator>
#include <mutex>

namespace pyxfer::hostrt {
namespace {

std::uintptr_t end_of(region const& each) { return each.address + each.bytes; }

}  // namespace

std::optional<region> memory_registry::last_below(std::uintptr_t end) const {
  auto const next = regions_.lower_bound(end);
  if (next == regions_.begin()) return std::nullopt;
  return std::prev(next)->second;
}

bool memory_registry::add(region const& added) {
  std::unique_lock const lock{mutex_};
  auto const below = last_below(end_of(added));
  if (below && end_of(*below) > added.address) return false;
  regions_.emplace(added.address, added);
  return true;
}

std::optional<region> memory_registry::find(void const* address) const {
  auto const begin = reinterpret_cast<std::uintptr_t>(address);
  std::shared_lock const lock{mutex_};
  auto const below = last_below(begin + 1);
  if (!below || end_of(*below) <= begin) return std::nullopt;
  return below;
}

placement memory_registry::place(void const* address, std::size_t bytes) const {
  auto const begin = reinterpret_cast<std::uintptr_t>(address);
  auto const end = begin + bytes;
  if (end < begin) return placement::outside;
  std::shared_lock const lock{mutex_};
  auto const below = last_below(end);
  if (!below || end_of(*below) <= begin) return placement::pageable;
  if (begin < below->address) {
    // A copy from pageable memory into a locked region is as one of pageable memory alone.
    auto const before = last_below(begin + 1);
    auto const begins_pageable = !before || end_of(*before) <= begin;
    auto const meets_device = below->kind == memory_kind::device;
    return begins_pageable && !meets_device ? placement::pageable : placement::outside;
  }
  if (end > end_of(*below)) return placement::outside;
  return below->kind == memory_kind::device ? placement::device : placement::locked;
}

std::vector<region> memory_registry::all() const {
  std::shared_lock const lock{mutex_};
  std::vector<region> live;
  live.reserve(regions_.size());
  for (auto const& [address, each] : regions_) live.push_back(each);
  return live;
}

memory_registry& memory() {
  static auto& the_memory = *new memory_registry;
  return the_memory;
}

}  // namespace pyxfer::hostrt
