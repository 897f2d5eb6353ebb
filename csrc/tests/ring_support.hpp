#pragma once

#include "copy/content.hpp"
#include "engine_support.hpp"
#include "ring/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace pyxfer::tests {

using numbers = std::vector<std::ptrdiff_t>;
using bytes = std::vector<unsigned char>;

inline bytes random_bytes(std::size_t count, unsigned int seed) {
  bytes made(count);
  if (count != 0) { fill(reinterpret_cast<std::uintptr_t>(made.data()), count, seed); }
  return made;
}

/// An array within its own random bytes, and its contents in C order, collected item by item.
class array {
 public:
  array(std::ptrdiff_t itemsize, numbers shape, numbers strides, unsigned int seed = 1)
      : itemsize_{itemsize}, shape_{std::move(shape)}, strides_{std::move(strides)} {
    std::ptrdiff_t below = 0;
    std::ptrdiff_t above = itemsize_;
    for (std::size_t i = 0; i < shape_.size(); ++i) {
      auto const reach = (std::max<std::ptrdiff_t>(shape_[i], 1) - 1) * strides_[i];
      (reach < 0 ? below : above) += reach;
    }
    first_ = static_cast<std::size_t>(-below);
    memory_ = random_bytes(first_ + static_cast<std::size_t>(above), seed);
  }
  /// A contiguous array.
  explicit array(std::size_t count, unsigned int seed = 1)
      : array{1, {static_cast<std::ptrdiff_t>(count)}, {1}, seed} {}

  [[nodiscard]] layout view() const {
    return {reinterpret_cast<std::uintptr_t>(memory_.data() + first_), itemsize_, shape_, strides_};
  }

  [[nodiscard]] bytes contents() const {
    bytes found;
    for_each_run(0, 0, [&](std::size_t at, std::size_t count) {
      auto const begin = memory_.begin() + static_cast<std::ptrdiff_t>(at);
      found.insert(found.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
    });
    return found;
  }
  /// All of its memory as it would be with these items.
  [[nodiscard]] bytes memory_with(bytes const& items) const {
    auto expected = memory_;
    std::size_t next = 0;
    for_each_run(0, 0, [&](std::size_t at, std::size_t count) {
      std::memcpy(expected.data() + at, items.data() + next, count);
      next += count;
    });
    return expected;
  }
  [[nodiscard]] bytes const& memory() const { return memory_; }

 private:
  /// Calls `visit(offset, bytes)` for each item, or for each row of adjacent items.
  template <typename Visit>
  // NOLINTNEXTLINE(misc-no-recursion): one level per dimension
  void for_each_run(std::size_t dimension, std::ptrdiff_t offset, Visit const& visit) const {
    auto const at = first_ + static_cast<std::size_t>(offset);
    if (dimension == shape_.size()) {
      visit(at, static_cast<std::size_t>(itemsize_));
    } else if (dimension + 1 == shape_.size() && strides_.back() == itemsize_ &&
               shape_.back() != 0) {
      visit(at, static_cast<std::size_t>(itemsize_ * shape_.back()));
    } else {
      for (std::ptrdiff_t i = 0; i < shape_[dimension]; ++i) {
        for_each_run(dimension + 1, offset + i * strides_[dimension], visit);
      }
    }
  }

  std::ptrdiff_t itemsize_;
  numbers shape_;
  numbers strides_;
  std::size_t first_{};
  bytes memory_;
};

/// A random array of up to four dimensions in any order, cut, reversed and spread. No byte belongs
/// to two items.
inline array random_array(unsigned int seed, std::ptrdiff_t most_extent = 9) {
  std::mt19937 random{seed};
  auto const below = [&](std::ptrdiff_t limit) {
    return static_cast<std::ptrdiff_t>(random() % static_cast<unsigned long>(limit));
  };
  auto const itemsize = numbers{1, 2, 3, 4, 8, 12, 16, 24, 60}.at(random() % 9);
  numbers shape(random() % 5);
  for (auto& extent : shape) { extent = 1 + below(most_extent); }
  numbers order(shape.size());
  for (std::size_t i = 0; i < order.size(); ++i) { order[i] = static_cast<std::ptrdiff_t>(i); }
  std::shuffle(order.begin(), order.end(), random);
  numbers strides(shape.size());
  auto step = itemsize;
  for (auto const place : order) {
    auto const dimension = static_cast<std::size_t>(place);
    auto const gap = random() % 3 == 0 ? itemsize * below(3) : 0;
    strides[dimension] = random() % 4 == 0 ? -(step + gap) : step + gap;
    step = (step + gap) * shape[dimension];
  }
  return {itemsize, shape, strides, seed};
}

}  // namespace pyxfer::tests
