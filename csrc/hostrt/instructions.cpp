#include "instructions.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace pyxfer::hostrt {
namespace {

instruction computing(std::uint8_t operands, word (*compute)(word, word)) {
  return {action::compute, operands, 0, false, compute};
}

constexpr word low32(word bits) { return bits & 0xffffffff; }
std::int32_t signed32(word bits) { return static_cast<std::int32_t>(bits); }
std::int64_t signed64(word bits) { return static_cast<std::int64_t>(bits); }

float float32_of(word bits) {
  auto const upper = static_cast<std::uint32_t>(bits);
  float value = 0;
  std::memcpy(&value, &upper, sizeof value);
  return value;
}

double float64_of(word bits) {
  double value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// A device makes one NaN in 16 and in 32 bits.
word bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return std::isnan(value) ? 0x7fffffff : bits;
}

word bits_of(double value) {
  word bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// To the nearest number of 16 bits, or the even one of two, in one rounding.
word half_bits_of(double value) {
  if (std::isnan(value)) { return 0x7fff; }
  constexpr int least_exponent = -14;
  constexpr int fraction_bits = 10;
  constexpr word infinity = 0x7c00;
  auto const sign = word{std::signbit(value)} << 15U;
  auto const size = std::fabs(value);
  if (size == 0) { return sign; }
  auto const exponent = std::isinf(size) ? 16 : std::max(std::ilogb(size), least_exponent);
  if (exponent > 15) { return sign | infinity; }
  // The steps include the leading bit of a normal number, which adds one to the exponent's bits.
  auto const steps = static_cast<word>(std::nearbyint(std::ldexp(size, fraction_bits - exponent)));
  auto const biased = static_cast<word>(exponent - least_exponent) << fraction_bits;
  return sign | std::min(biased + steps, infinity);
}

float float32_of_half(word bits) {
  auto const fraction = static_cast<float>(bits & 0x3ffU);
  auto const biased = static_cast<int>(bits >> 10U & 0x1fU);
  auto size = biased == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, biased - 25);
  if (biased == 31) {
    size = fraction == 0 ? std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  return std::copysign(size, (bits & 0x8000U) != 0 ? -1.0F : 1.0F);
}

using instructions = std::map<std::string, instruction>;

instructions integer_instructions() {
  auto const move = computing(2, [](word a, word) { return a; });
  auto const bits_and = computing(3, [](word a, word b) { return a & b; });
  return {
      {"mov.u32", move},
      {"mov.u64", move},
      {"mov.b32", move},
      {"mov.b64", move},
      {"cvt.u64.u32", move},
      {"cvt.u32.u16", move},
      {"cvta.to.global.u64", move},
      {"ld.param.u32", move},
      {"ld.param.u64", move},
      {"add.u32", computing(3, [](word a, word b) { return low32(a + b); })},
      {"add.u64", computing(3, [](word a, word b) { return a + b; })},
      {"sub.u32", computing(3, [](word a, word b) { return low32(a - b); })},
      {"sub.u64", computing(3, [](word a, word b) { return a - b; })},
      {"mul.lo.u32", computing(3, [](word a, word b) { return low32(a * b); })},
      {"mul.lo.u64", computing(3, [](word a, word b) { return a * b; })},
      {"mul.wide.u32", computing(3, [](word a, word b) { return a * b; })},
      {"div.u32", computing(3, [](word a, word b) { return b == 0 ? 0xffffffff : a / b; })},
      {"rem.u32", computing(3, [](word a, word b) { return b == 0 ? a : a % b; })},
      {"and.b32", bits_and},
      {"and.b64", bits_and},
      {"or.b32", computing(3, [](word a, word b) { return a | b; })},
      {"shl.b32", computing(3, [](word a, word b) { return b < 32 ? low32(a << b) : 0; })},
      {"shl.b64", computing(3, [](word a, word b) { return b < 64 ? a << b : 0; })},
      {"shr.u32", computing(3, [](word a, word b) { return b < 32 ? a >> b : 0; })},
      {"shr.u64", computing(3, [](word a, word b) { return b < 64 ? a >> b : 0; })},
      {"shr.s32", computing(3,
                            [](word a, word b) {
                              auto const shifted = signed32(a) >> std::min<word>(b, 31);
                              return word{static_cast<std::uint32_t>(shifted)};
                            })},
  };
}

instructions conversions() {
  return {
      {"cvt.u16.u32", computing(2, [](word a, word) { return a & 0xffff; })},
      {"cvt.u32.u64", computing(2, [](word a, word) { return low32(a); })},
      {"cvt.s64.s32", computing(2, [](word a, word) { return static_cast<word>(signed32(a)); })},
      {"cvt.rn.f32.u32", computing(2, [](word a, word) { return bits_of(static_cast<float>(a)); })},
      {"cvt.rn.f32.s32",
       computing(2, [](word a, word) { return bits_of(static_cast<float>(signed32(a))); })},
      {"cvt.rn.f32.u64", computing(2, [](word a, word) { return bits_of(static_cast<float>(a)); })},
      {"cvt.rn.f32.s64",
       computing(2, [](word a, word) { return bits_of(static_cast<float>(signed64(a))); })},
      {"cvt.rn.f32.f64",
       computing(2, [](word a, word) { return bits_of(static_cast<float>(float64_of(a))); })},
      {"cvt.rn.f64.u32",
       computing(2, [](word a, word) { return bits_of(static_cast<double>(a)); })},
      {"cvt.rn.f64.s32",
       computing(2, [](word a, word) { return bits_of(static_cast<double>(signed32(a))); })},
      {"cvt.rn.f64.u64",
       computing(2, [](word a, word) { return bits_of(static_cast<double>(a)); })},
      {"cvt.rn.f64.s64",
       computing(2, [](word a, word) { return bits_of(static_cast<double>(signed64(a))); })},
      {"cvt.f64.f32", computing(2, [](word a, word) { return bits_of(double{float32_of(a)}); })},
      {"cvt.f32.f16", computing(2, [](word a, word) { return bits_of(float32_of_half(a)); })},
      {"cvt.rn.f16.f32", computing(2, [](word a, word) { return half_bits_of(float32_of(a)); })},
      {"cvt.rn.f16.f64", computing(2, [](word a, word) { return half_bits_of(float64_of(a)); })},
  };
}

instructions predicate_instructions() {
  auto const equal = computing(3, [](word a, word b) { return word{a == b}; });
  auto const unequal = computing(3, [](word a, word b) { return word{a != b}; });
  auto const less = computing(3, [](word a, word b) { return word{a < b}; });
  auto const not_less = computing(3, [](word a, word b) { return word{a >= b}; });
  return {
      {"mov.pred", computing(2, [](word a, word) { return a; })},
      {"and.pred", computing(3, [](word a, word b) { return a & b; })},
      {"xor.pred", computing(3, [](word a, word b) { return a ^ b; })},
      {"setp.eq.u32", equal},
      {"setp.eq.u64", equal},
      {"setp.ne.u32", unequal},
      {"setp.ne.u64", unequal},
      {"setp.lt.u32", less},
      {"setp.lt.u64", less},
      {"setp.ge.u32", not_less},
      {"setp.ge.u64", not_less},
      {"setp.gt.u32", computing(3, [](word a, word b) { return word{a > b}; })},
  };
}

instructions other_instructions() {
  return {
      {"ld.global.u32", {action::load, 1, 4, true}},
      {"ld.global.u64", {action::load, 1, 8, true}},
      {"ld.global.v2.u32", {action::load, 2, 4, true}},
      {"ld.volatile.global.u32", {action::load, 1, 4}},
      {"ld.volatile.global.u64", {action::load, 1, 8}},
      {"ld.global.cg.u8", {action::load, 1, 1}},
      {"ld.global.cg.u16", {action::load, 1, 2}},
      {"ld.global.cg.b32", {action::load, 1, 4}},
      {"ld.global.cg.b64", {action::load, 1, 8}},
      {"ld.global.cg.v2.b32", {action::load, 2, 4}},
      {"ld.global.cg.v4.b32", {action::load, 4, 4}},
      {"ld.global.cg.v2.b64", {action::load, 2, 8}},
      {"st.global.u32", {action::store, 1, 4}},
      {"st.global.u64", {action::store, 1, 8}},
      {"st.volatile.global.u32", {action::store, 1, 4}},
      {"st.global.cg.u8", {action::store, 1, 1}},
      {"st.global.cg.u16", {action::store, 1, 2}},
      {"st.global.cg.b32", {action::store, 1, 4}},
      {"st.global.cg.b64", {action::store, 1, 8}},
      {"st.global.cg.v2.b32", {action::store, 2, 4}},
      {"st.global.cg.v4.b32", {action::store, 4, 4}},
      {"st.global.cg.v2.b64", {action::store, 2, 8}},
      {"fma.rn.f32", {action::multiply_add, 4}},
      {"membar.sys", {action::fence}},
      {"bra", {action::branch, 1}},
      {"ret", {action::leave}},
  };
}

}  // namespace

word multiply_add(word a, word b, word c) {
  return bits_of(std::fma(float32_of(a), float32_of(b), float32_of(c)));
}

std::map<std::string, instruction> const& known_instructions() {
  static auto& known = *new instructions{[] {
    auto all = integer_instructions();
    for (auto more : {conversions(), predicate_instructions(), other_instructions()}) {
      all.merge(more);
    }
    return all;
  }()};
  return known;
}

}  // namespace pyxfer::hostrt
