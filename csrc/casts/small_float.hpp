#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pyxfer {

// float16 and bfloat16 as bits, because C++17 has no types for them. The functions take no
// branches, so loops over them can be vectorised.

template <class To, class From>
[[nodiscard]] inline To bits_as(From value) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// `yes` or `no`, and no branch: compilers move what a branch does not need into it.
template <class Word>
[[nodiscard]] inline Word choose(bool condition, Word yes, Word no) noexcept {
  auto const mask = static_cast<Word>(-static_cast<Word>(condition));
  return static_cast<Word>((yes & mask) | (no & ~mask));
}

template <class Number>
struct float_format;

template <>
struct float_format<float> {
  using word = std::uint32_t;
  static constexpr unsigned fraction_bits = 23;
  static constexpr unsigned bias = 127;
};

template <>
struct float_format<double> {
  using word = std::uint64_t;
  static constexpr unsigned fraction_bits = 52;
  static constexpr unsigned bias = 1023;
};

/// The nearest float16, or the even one of two: also a float64 is rounded once. From 65520 on
/// numbers become infinite.
template <class Number>
[[nodiscard]] inline std::uint16_t float16_of(Number value) noexcept {
  using format = float_format<Number>;
  using word = typename format::word;
  constexpr auto with_exponent = [](unsigned exponent) {
    return static_cast<word>(word{exponent} << format::fraction_bits);
  };
  constexpr unsigned dropped = format::fraction_bits - 10;
  constexpr word rebias = with_exponent(format::bias - 15);
  constexpr word least_normal = with_exponent(format::bias - 14);
  constexpr word too_large = with_exponent(format::bias + 16);
  constexpr word infinity = with_exponent(2 * format::bias + 1);
  // The number whose last bit is float16's least step: an addition to it rounds to such steps.
  constexpr word steps = with_exponent(format::bias - 14 + dropped);

  auto const bits = bits_as<word>(value);
  auto const sign = static_cast<word>(bits >> (8 * sizeof(word) - 1));
  auto const size = static_cast<word>(bits & (~word{0} >> 1U));
  auto const odd = static_cast<word>(size >> dropped & 1U);
  auto const below_half = static_cast<word>((word{1} << (dropped - 1)) - 1);
  auto result = static_cast<word>((size - rebias + below_half + odd) >> dropped);
  auto const in_steps =
      static_cast<word>(bits_as<word>(bits_as<Number>(size) + bits_as<Number>(steps)) - steps);
  result = choose(size < least_normal, in_steps, result);
  result = choose(size >= too_large, word{0x7C00}, result);
  result = choose(size > infinity, word{0x7E00}, result);
  return static_cast<std::uint16_t>(sign << 15U | result);
}

/// Every float16 is a float32.
[[nodiscard]] inline float float32_of_float16(std::uint16_t half) noexcept {
  constexpr std::uint32_t exponent = 0x1FU << 23U;
  constexpr std::uint32_t rebias = (127U - 15U) << 23U;
  constexpr std::uint32_t least_normal = (127U - 14U) << 23U;
  auto const size = static_cast<std::uint32_t>(half & 0x7FFFU) << 13U;
  auto const sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  auto result = size + rebias;
  // A subnormal lacks the leading bit that a float32 with its exponent has.
  auto const subnormal =
      bits_as<std::uint32_t>(bits_as<float>(size + least_normal) - bits_as<float>(least_normal));
  result = choose(size < 1U << 23U, subnormal, result);
  result = choose(size >= exponent, result + rebias, result);
  return bits_as<float>(sign | result);
}

/// The nearest bfloat16, or the even one of two.
[[nodiscard]] inline std::uint16_t bfloat16_of(float value) noexcept {
  auto const bits = bits_as<std::uint32_t>(value);
  auto const rounded = bits + 0x7FFFU + (bits >> 16U & 1U);
  // Rounding could carry a NaN's bits out of its exponent, or leave none of them.
  auto const quiet = bits | 1U << 22U;
  auto const is_nan = (bits & ~(1U << 31U)) > 0x7F80'0000U;
  return static_cast<std::uint16_t>((is_nan ? quiet : rounded) >> 16U);
}

/// Every bfloat16 is a float32.
[[nodiscard]] inline float float32_of_bfloat16(std::uint16_t upper) noexcept {
  return bits_as<float>(static_cast<std::uint32_t>(upper) << 16U);
}

}  // namespace pyxfer
