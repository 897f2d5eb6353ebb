#include "casts/cast.hpp"

#include <gtest/gtest.h>

#include "casts_support.hpp"

#include <stdexcept>
#include <tuple>

namespace pyxfer::tests {
namespace {

using kind = item_kind;

template <class Item>
item_bytes bytes_with(Item item) {
  item_bytes bytes(sizeof item);
  std::memcpy(bytes.data(), &item, sizeof item);
  return bytes;
}

/// What the compiler's conversion of one value gives.
template <class Value>
item_bytes converted(Value value, kind to) {
  switch (to) {
    case kind::boolean: return bytes_with(static_cast<std::uint8_t>(value != 0));
    case kind::f16:
      if constexpr (std::is_same_v<Value, double>) { return bytes_with(float16_of(value)); }
      return bytes_with(float16_of(static_cast<float>(value)));
    case kind::bf16: return bytes_with(bfloat16_of(static_cast<float>(value)));
    case kind::f32: return bytes_with(static_cast<float>(value));
    case kind::f64: return bytes_with(static_cast<double>(value));
    default: break;
  }
  if constexpr (std::is_integral_v<Value>) {
    // Its lowest bytes, for x86_64 and Arm are little-endian.
    auto bytes = bytes_with(static_cast<std::int64_t>(value));
    bytes.resize(bytes_of(to));
    return bytes;
  }
  throw std::invalid_argument("a float does not become an integer");
}

item_bytes expected_of(kind from, kind to, unsigned char const* item) {
  switch (from) {
    case kind::boolean: return converted(item_at<std::uint8_t>(item) != 0 ? 1 : 0, to);
    case kind::u8: return converted(item_at<std::uint8_t>(item), to);
    case kind::i8: return converted(item_at<std::int8_t>(item), to);
    case kind::u16: return converted(item_at<std::uint16_t>(item), to);
    case kind::i16: return converted(item_at<std::int16_t>(item), to);
    case kind::u32: return converted(item_at<std::uint32_t>(item), to);
    case kind::i32: return converted(item_at<std::int32_t>(item), to);
    case kind::u64: return converted(item_at<std::uint64_t>(item), to);
    case kind::i64: return converted(item_at<std::int64_t>(item), to);
    case kind::f16: return converted(float32_of_float16(item_at<std::uint16_t>(item)), to);
    case kind::bf16: return converted(float32_of_bfloat16(item_at<std::uint16_t>(item)), to);
    case kind::f32: return converted(item_at<float>(item), to);
    case kind::f64: return converted(item_at<double>(item), to);
  }
  return {};
}

class casts_plain : public ::testing::TestWithParam<std::tuple<item_kind, item_kind>> {};

TEST_P(casts_plain, converts_as_the_compiler_does) {
  auto const [from, to] = GetParam();
  if (!can_cast(from, to)) {
    EXPECT_THROW(static_cast<void>(plain_cast(from, to)), std::invalid_argument);
    return;
  }
  auto const source = items_of(from, 2'000, 1);
  item_bytes expected;
  // Equal formats move their bits, also those that no program writes for true.
  if (from == to) { expected = source; }
  for (std::size_t at = expected.size(); at < source.size(); at += bytes_of(from)) {
    auto const item = expected_of(from, to, &source[at]);
    expected.insert(expected.end(), item.begin(), item.end());
  }
  EXPECT_TRUE(same_items(to, cast_all(plain_cast(from, to), from, to, source), expected));
}

TEST_P(casts_plain, converts_at_every_alignment_and_touches_nothing_else) {
  auto const [from, to] = GetParam();
  if (!can_cast(from, to)) { return; }
  expect_only_the_target_changes(plain_cast(from, to), from, to, 40, 9);
}

INSTANTIATE_TEST_SUITE_P(of_every_pair, casts_plain,
                         ::testing::Combine(::testing::ValuesIn(every_kind()),
                                            ::testing::ValuesIn(every_kind())),
                         [](auto const& tested) {
                           return std::string{word_of(std::get<0>(tested.param))} + "_to_" +
                                  word_of(std::get<1>(tested.param));
                         });

TEST(casts_plain_cast, is_refused_from_floats_to_integers) {
  for (auto const from : every_kind()) {
    for (auto const to : every_kind()) {
      EXPECT_EQ(can_cast(from, to), is_float(to) || !is_float(from) || to == kind::boolean)
          << words_of(from, to);
    }
  }
}

template <class To, class From>
To one(kind from, kind to, From value) {
  To result;
  plain_cast(from, to)(&result, &value, 1);
  return result;
}

TEST(casts_plain_cast, rounds_a_float64_once_to_float16_and_twice_to_bfloat16) {
  auto const above_a_tie = [](int bits) {
    return 1.0 + std::ldexp(1.0, -bits - 1) + std::ldexp(1.0, -40);
  };
  EXPECT_EQ(one<std::uint16_t>(kind::f64, kind::f16, above_a_tie(10)), 0x3C01);
  EXPECT_EQ(one<std::uint16_t>(kind::f64, kind::bf16, above_a_tie(7)), 0x3F80);
}

TEST(casts_plain_cast, rounds_a_large_integer_to_float32_first) {
  auto const above_a_tie = (std::int64_t{1} << 40U) + (std::int64_t{1} << 32U) + 1;
  EXPECT_EQ(one<std::uint16_t>(kind::i64, kind::bf16, above_a_tie), 0x5380);
  EXPECT_EQ(one<std::uint16_t>(kind::i32, kind::f16, std::int32_t{65520}), 0x7C00);
  EXPECT_EQ(one<std::uint16_t>(kind::i32, kind::f16, std::int32_t{65519}), 0x7BFF);
}

TEST(casts_plain_cast, keeps_the_lower_bits_of_an_integer) {
  EXPECT_EQ(one<std::uint8_t>(kind::i32, kind::u8, std::int32_t{-2}), 254);
  EXPECT_EQ(one<std::int64_t>(kind::i8, kind::i64, std::int8_t{-2}), -2);
  EXPECT_EQ(one<std::uint64_t>(kind::i8, kind::u64, std::int8_t{-1}), ~std::uint64_t{0});
  EXPECT_EQ(one<std::int64_t>(kind::u32, kind::i64, ~std::uint32_t{0}), 0xFFFF'FFFF);
}

TEST(casts_plain_cast, is_true_for_anything_but_zero) {
  EXPECT_EQ(one<std::uint8_t>(kind::i64, kind::boolean, std::int64_t{1} << 40U), 1);
  EXPECT_EQ(one<std::uint8_t>(kind::i64, kind::boolean, std::int64_t{0}), 0);
  EXPECT_EQ(one<float>(kind::boolean, kind::f32, std::uint8_t{2}), 1.0F);
}

}  // namespace
}  // namespace pyxfer::tests
