#include "casts/small_float.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace pyxfer::tests {
namespace {

constexpr std::uint32_t patterns = 1U << 16U;
constexpr auto infinity = std::numeric_limits<double>::infinity();

/// The number that IEEE 754 gives to the bits of an item with so many bits of fraction.
double meaning(std::uint32_t bits, int fraction_bits) {
  auto const exponent_bits = 15 - fraction_bits;
  auto const fraction = bits & ((1U << fraction_bits) - 1);
  auto const exponent = static_cast<int>(bits >> fraction_bits & ((1U << exponent_bits) - 1));
  auto const bias = (1 << (exponent_bits - 1)) - 1;
  auto const sign = bits >> 15U != 0 ? -1.0 : 1.0;
  if (exponent == 2 * bias + 1) { return fraction == 0 ? sign * infinity : std::nan(""); }
  auto const leading = exponent == 0 ? 0U : 1U << fraction_bits;
  auto const scale = std::max(exponent, 1) - bias - fraction_bits;
  return sign * std::ldexp(static_cast<double>(leading + fraction), scale);
}

bool is_nan(std::uint16_t bits, int fraction_bits) {
  return std::isnan(meaning(bits, fraction_bits));
}

TEST(casts_float16, is_a_float32_and_comes_back_from_it_and_from_float64) {
  for (std::uint32_t bits = 0; bits < patterns; ++bits) {
    auto const half = static_cast<std::uint16_t>(bits);
    auto const value = float32_of_float16(half);
    if (is_nan(half, 10)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(is_nan(float16_of(value), 10)) << bits;
      EXPECT_EQ(float16_of(value) >> 15U, bits >> 15U) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(value), meaning(bits, 10)) << bits;
      EXPECT_EQ(std::signbit(value), bits >> 15U != 0) << bits;
      EXPECT_EQ(float16_of(value), half);
      EXPECT_EQ(float16_of(static_cast<double>(value)), half);
    }
  }
}

TEST(casts_bfloat16, is_a_float32_and_comes_back_from_it) {
  for (std::uint32_t bits = 0; bits < patterns; ++bits) {
    auto const upper = static_cast<std::uint16_t>(bits);
    auto const value = float32_of_bfloat16(upper);
    if (is_nan(upper, 7)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(is_nan(bfloat16_of(value), 7)) << bits;
      EXPECT_EQ(bfloat16_of(value) >> 15U, bits >> 15U) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(value), meaning(bits, 7)) << bits;
      EXPECT_EQ(std::signbit(value), bits >> 15U != 0) << bits;
      EXPECT_EQ(bfloat16_of(value), upper);
    }
  }
}

/// Between each finite item and the next larger one: the nearer of them, and in the middle the even
/// one. The middle behind the largest item begins infinity.
template <class Number, class Convert>
void expect_nearest(Convert const& convert, int fraction_bits) {
  auto const infinite = ((1U << (15 - fraction_bits)) - 1) << fraction_bits;
  constexpr auto up = std::numeric_limits<Number>::infinity();
  for (std::uint32_t bits = 0; bits < infinite; ++bits) {
    // The step before infinity has the size of the last one.
    auto const low = meaning(bits, fraction_bits);
    auto const step = bits + 1 < infinite ? meaning(bits + 1, fraction_bits) - low
                                          : low - meaning(bits - 1, fraction_bits);
    auto const middle = static_cast<Number>(low + step / 2);
    EXPECT_EQ(convert(middle), bits + (bits & 1U));
    EXPECT_EQ(convert(std::nextafter(middle, Number{0})), bits);
    EXPECT_EQ(convert(std::nextafter(middle, up)), bits + 1);
    EXPECT_EQ(convert(-middle), 0x8000U + bits + (bits & 1U));
  }
  EXPECT_EQ(convert(std::numeric_limits<Number>::max()), infinite);
  EXPECT_EQ(convert(std::numeric_limits<Number>::lowest()), 0x8000U + infinite);
  EXPECT_EQ(convert(std::numeric_limits<Number>::denorm_min()), 0U);
}

TEST(casts_float16, is_the_nearest_to_a_float32) {
  expect_nearest<float>([](float value) { return float16_of(value); }, 10);
}

TEST(casts_float16, is_the_nearest_to_a_float64_which_is_rounded_once) {
  expect_nearest<double>([](double value) { return float16_of(value); }, 10);
  auto const above_a_tie = 1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  EXPECT_EQ(float16_of(above_a_tie), 0x3C01);
  EXPECT_EQ(float16_of(static_cast<float>(above_a_tie)), 0x3C00);
}

TEST(casts_bfloat16, is_the_nearest_to_a_float32) {
  expect_nearest<float>([](float value) { return bfloat16_of(value); }, 7);
}

template <class Number>
void expect_nan(std::uint64_t first, std::uint64_t last) {
  using word = typename float_format<Number>::word;
  for (auto const bits : {first, first + 1, last - 1, last}) {
    EXPECT_TRUE(is_nan(float16_of(bits_as<Number>(static_cast<word>(bits))), 10)) << bits;
    if constexpr (sizeof(Number) == 4) {
      EXPECT_TRUE(is_nan(bfloat16_of(bits_as<Number>(static_cast<word>(bits))), 7)) << bits;
    }
  }
}

TEST(casts_small_float, is_nan_for_every_nan) {
  expect_nan<float>(0x7F80'0001, 0x7FFF'FFFF);
  expect_nan<float>(0xFF80'0001, 0xFFFF'FFFF);
  expect_nan<double>(0x7FF0'0000'0000'0001, 0x7FFF'FFFF'FFFF'FFFF);
  expect_nan<double>(0xFFF0'0000'0000'0001, 0xFFFF'FFFF'FFFF'FFFF);
}

#ifdef __FLT16_MANT_DIG__

__extension__ using compilers_half = _Float16;

TEST(casts_float16, is_the_compilers) {
  std::mt19937_64 random{7};
  for (int i = 0; i < 200'000; ++i) {
    auto const bits = random();
    // Half of the numbers are of a size that float16 has.
    auto const near_one = std::ldexp(static_cast<double>(bits), -64 + i % 48 - 30);
    for (auto const value : {bits_as<double>(bits), near_one}) {
      if (std::isnan(value)) { continue; }
      auto const narrow = static_cast<float>(value);
      ASSERT_EQ(float16_of(value), bits_as<std::uint16_t>(static_cast<compilers_half>(value)));
      ASSERT_EQ(float16_of(narrow), bits_as<std::uint16_t>(static_cast<compilers_half>(narrow)));
    }
  }
}

#endif

}  // namespace
}  // namespace pyxfer::tests
