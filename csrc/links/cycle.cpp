#include "links/cycle.hpp"

#include "copy/lane.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/memory.hpp"
#include "links/flow.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

namespace pyxfer {
namespace {

constexpr std::size_t pointer_bytes = sizeof(std::uint64_t);
constexpr std::size_t most_scratch = std::size_t{4} << 20U;

void check(cycle_plan const& plan) {
  if (plan.address == 0 || plan.address % pointer_bytes != 0 || plan.stride < pointer_bytes ||
      plan.stride % pointer_bytes != 0) {
    throw std::invalid_argument("a cycle needs an address and a stride that are multiples of 8");
  }
  if (plan.bytes / plan.stride < 2) {
    throw std::invalid_argument("a cycle needs memory for at least two places");
  }
}

/// The next place of each place, on one cycle (Sattolo 1986). The generator's numbers are the same
/// with every C++ library; those of its distributions are not.
std::vector<std::uint64_t> one_cycle(std::size_t places, std::uint64_t seed) {
  std::vector<std::uint64_t> next(places);
  std::iota(next.begin(), next.end(), std::uint64_t{0});
  std::mt19937_64 random{seed};
  for (auto last = places - 1; last > 0; --last) { std::swap(next[last], next[random() % last]); }
  return next;
}

/// Writes the pointers of the places from `first` on, to memory that begins with that place.
void write(std::uintptr_t to, std::size_t first, std::size_t count, cycle_plan const& plan,
           std::vector<std::uint64_t> const& next) {
  for (std::size_t i = 0; i < count; ++i) {
    *reinterpret_cast<std::uint64_t*>(to + i * plan.stride) =
        plan.address + next[first + i] * plan.stride;
  }
}

void write_to_device(cycle_plan const& plan, std::vector<std::uint64_t> const& next) {
  device_guard const guard{plan.device};
  auto const at_once = std::clamp<std::size_t>(most_scratch / plan.stride, 1, next.size());
  host_buffer scratch{at_once * plan.stride, memory_kind::pinned, plan.device};
  for (std::size_t first = 0; first < next.size(); first += at_once) {
    auto const count = std::min(at_once, next.size() - first);
    auto const bytes = count * plan.stride;
    write(scratch.address(), first, count, plan, next);
    copy_blocking(lane{direction::h2d, scratch.address(), plan.address + first * plan.stride, bytes,
                       bytes, 1},
                  0);
  }
  scratch.close();
}

}  // namespace

std::size_t make_cycle(cycle_plan const& plan) {
  check(plan);
  auto const places = plan.bytes / plan.stride;
  auto const next = one_cycle(places, plan.seed);
  if (plan.device == flow::host) {
    write(plan.address, 0, places, plan, next);
  } else {
    write_to_device(plan, next);
  }
  return places;
}

}  // namespace pyxfer
