#pragma once

#include "casts/cast.hpp"
#include "casts/small_float.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace pyxfer::tests {

using item_bytes = std::vector<unsigned char>;

inline std::vector<item_kind> every_kind() {
  std::vector<item_kind> kinds;
  for (std::size_t i = 0; i < item_kinds; ++i) { kinds.push_back(static_cast<item_kind>(i)); }
  return kinds;
}

inline bool is_float(item_kind kind) { return kind >= item_kind::f16; }

inline std::string words_of(item_kind from, item_kind to) {
  return std::string{word_of(from)} + " to " + word_of(to);
}

template <class Item>
Item item_at(unsigned char const* at) {
  Item item;
  std::memcpy(&item, at, sizeof item);
  return item;
}

inline bool is_nan_at(item_kind kind, unsigned char const* at) {
  switch (kind) {
    case item_kind::f16: return std::isnan(float32_of_float16(item_at<std::uint16_t>(at)));
    case item_kind::bf16: return std::isnan(float32_of_bfloat16(item_at<std::uint16_t>(at)));
    case item_kind::f32: return std::isnan(item_at<float>(at));
    case item_kind::f64: return std::isnan(item_at<double>(at));
    default: return false;
  }
}

/// Items with random bits, and behind them those with few different bits, which are zeros, least
/// and largest numbers, infinities, NaN and ties.
inline item_bytes items_of(item_kind kind, std::size_t random_items, unsigned int seed) {
  auto const bytes = bytes_of(kind);
  item_bytes items;
  auto const add = [&](std::uint64_t bits) {
    for (std::size_t i = 0; i < bytes; ++i) {
      items.push_back(static_cast<unsigned char>(bits >> (8 * i)));
    }
  };
  std::mt19937_64 random{seed};
  for (std::size_t i = 0; i < random_items; ++i) {
    // Most random floats are far out of float16's range: half of them get an exponent near 0.
    auto const bits = random();
    auto const near_one = (i / 2 % 80 + 983) << 52U | bits % (1ULL << 52U) | bits >> 63U << 63U;
    if (i % 2 == 0 || !is_float(kind) || bytes < 4) {
      add(bits);
    } else {
      auto const value = bits_as<double>(near_one);
      add(bytes == 8 ? near_one : bits_as<std::uint32_t>(static_cast<float>(value)));
    }
  }
  auto const width = 8 * bytes;
  auto const all = ~std::uint64_t{0} >> (64 - width);
  for (std::size_t from = 0; from < width; ++from) {
    for (std::size_t to = from; to < width; ++to) {
      auto const run = all >> (width - 1 - (to - from)) << from & all;
      for (auto const bits : {run, run + 1, run - 1, ~run, run | 1U, run ^ (all >> 1U) ^ all}) {
        add(bits & all);
      }
    }
  }
  return items;
}

/// Whether the results are the same items; one NaN is as good as another.
inline ::testing::AssertionResult same_items(item_kind kind, item_bytes const& found,
                                             item_bytes const& expected) {
  auto const bytes = bytes_of(kind);
  for (std::size_t at = 0; at < expected.size(); at += bytes) {
    if (std::memcmp(&found[at], &expected[at], bytes) == 0) { continue; }
    if (is_nan_at(kind, &found[at]) && is_nan_at(kind, &expected[at])) { continue; }
    return ::testing::AssertionFailure() << "item " << at / bytes << " of " << word_of(kind);
  }
  return found.size() == expected.size() ? ::testing::AssertionSuccess()
                                         : ::testing::AssertionFailure() << "other sizes";
}

inline item_bytes cast_all(cast_function cast, item_kind from, item_kind to,
                           item_bytes const& source) {
  auto const items = source.size() / bytes_of(from);
  item_bytes target(items * bytes_of(to));
  cast(target.data(), source.data(), items);
  return target;
}

/// Casts from and to memory at many alignments, whose other bytes must stay.
inline void expect_only_the_target_changes(cast_function cast, item_kind from, item_kind to,
                                           std::size_t most_items, std::size_t alignments) {
  constexpr std::size_t guard = 128;
  constexpr std::size_t line = 64;
  auto const source = items_of(from, most_items + line, 3);
  item_bytes const untouched(guard + 2 * line + most_items * bytes_of(to) + guard, 0xA5);
  auto target = untouched;
  auto expected = untouched;
  // The alignment of the vector's memory varies.
  auto const to_line = line - reinterpret_cast<std::uintptr_t>(target.data()) % line;
  auto const plain = plain_cast(from, to);
  for (std::size_t place = 0; place < alignments; ++place) {
    auto const* const get = source.data() + place * 7 % line;
    for (std::size_t items = 0; items <= most_items; ++items) {
      cast(target.data() + to_line + place, get, items);
      plain(expected.data() + to_line + place, get, items);
      if (target == expected) { continue; }
      auto const first = static_cast<std::ptrdiff_t>(to_line + place);
      auto const last = first + static_cast<std::ptrdiff_t>(items * bytes_of(to));
      ASSERT_TRUE(same_items(to, {target.begin() + first, target.begin() + last},
                             {expected.begin() + first, expected.begin() + last}))
          << items << " items to alignment " << place;
      std::copy(expected.begin() + first, expected.begin() + last, target.begin() + first);
      ASSERT_EQ(target, expected) << items << " items to alignment " << place;
    }
    target = untouched;
    expected = untouched;
  }
}

}  // namespace pyxfer::tests
