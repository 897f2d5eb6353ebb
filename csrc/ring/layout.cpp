#include "ring/layout.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pyxfer {
namespace {

[[noreturn]] void refuse(std::string const& why) { throw std::invalid_argument(why); }

std::size_t as_extent(std::ptrdiff_t number) {
  if (number < 0) { refuse("an array has no dimension of " + std::to_string(number) + " items"); }
  return static_cast<std::size_t>(number);
}

/// Bytes of all items together, checked as NumPy checks them: they can be counted with a sign.
std::size_t total_bytes(std::ptrdiff_t itemsize, std::vector<std::ptrdiff_t> const& shape) {
  std::ptrdiff_t total = itemsize;
  bool overflows = false;
  for (auto const extent : shape) {
    if (as_extent(extent) == 0) { return 0; }
    overflows = overflows || __builtin_mul_overflow(total, extent, &total);
  }
  if (overflows) { refuse("an array of that shape has more bytes than can be addressed"); }
  return static_cast<std::size_t>(total);
}

/// The first and the last item must lie in one address space.
void require_addressable(std::uintptr_t address, std::ptrdiff_t itemsize,
                         std::vector<std::ptrdiff_t> const& shape,
                         std::vector<std::ptrdiff_t> const& strides) {
  std::ptrdiff_t below = 0;
  std::ptrdiff_t above = itemsize;
  bool overflows = false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::ptrdiff_t reach = 0;
    overflows = overflows || __builtin_mul_overflow(shape[i] - 1, strides[i], &reach);
    auto& side = reach < 0 ? below : above;
    overflows = overflows || __builtin_add_overflow(side, reach, &side);
  }
  std::uintptr_t end = 0;
  overflows = overflows ||
              __builtin_add_overflow(address, static_cast<std::uintptr_t>(above), &end) ||
              address < std::uintptr_t{0} - static_cast<std::uintptr_t>(below);
  if (overflows) { refuse("an array with those strides leaves the address space"); }
}

}  // namespace

layout::layout(std::uintptr_t address, std::ptrdiff_t itemsize,
               std::vector<std::ptrdiff_t> const& shape, std::vector<std::ptrdiff_t> const& strides)
    : address_{address}, bytes_{total_bytes(itemsize, shape)} {
  if (shape.size() != strides.size() || shape.size() > most_dimensions) {
    refuse("an array has a stride for each of up to 64 dimensions, and not " +
           std::to_string(strides.size()) + " for " + std::to_string(shape.size()));
  }
  if (itemsize < 1) { refuse("an item has at least one byte"); }
  if (bytes_ == 0) { return; }
  if (address == 0) { refuse("an array needs the address of its first item"); }
  require_addressable(address, itemsize, shape, strides);
  run_bytes_ = static_cast<std::size_t>(itemsize);
  for (auto i = shape.size(); i-- > 0;) {
    if (shape[i] != 1) { add_outer({as_extent(shape[i]), strides[i]}); }
  }
  std::reverse(rows_.begin(), rows_.end());
}

/// From the innermost dimension outwards. Two that a single step would walk through become one.
void layout::add_outer(dimension const& next) {
  auto const run = static_cast<std::ptrdiff_t>(run_bytes_);
  if (rows_.empty() && next.stride == run) {
    run_bytes_ *= next.extent;
    return;
  }
  if (!rows_.empty()) {
    auto& inner = rows_.back();
    std::ptrdiff_t whole = 0;
    auto const extent = static_cast<std::ptrdiff_t>(inner.extent);
    if (!__builtin_mul_overflow(inner.stride, extent, &whole) && whole == next.stride) {
      inner.extent *= next.extent;
      return;
    }
  }
  rows_.push_back(next);
}

bool layout::is_disjoint() const {
  auto by_stride = rows_;
  auto const distance = [](dimension const& of) {
    auto const stride = static_cast<std::size_t>(of.stride);
    return of.stride < 0 ? std::size_t{0} - stride : stride;
  };
  std::sort(by_stride.begin(), by_stride.end(),
            [&](dimension const& a, dimension const& b) { return distance(a) < distance(b); });
  auto covered = run_bytes_;
  return std::all_of(by_stride.begin(), by_stride.end(), [&](dimension const& each) {
    auto const apart = distance(each) >= covered;
    covered += distance(each) * (each.extent - 1);
    return apart;
  });
}

void validate_destination(layout const& made) {
  if (made.is_disjoint()) { return; }
  refuse(
      "the items of the destination share bytes, or lie between one another: download into an "
      "array with memory of its own");
}

}  // namespace pyxfer
