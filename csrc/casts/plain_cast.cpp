#include "casts/cast.hpp"
#include "casts/small_float.hpp"

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace pyxfer {
namespace {

using kind = item_kind;

constexpr bool is_float(kind of) noexcept { return of >= kind::f16; }

constexpr bool has_one_meaning(kind from, kind to) noexcept {
  return is_float(to) || !is_float(from) || to == kind::boolean;
}

/// What an item of each kind is stored as.
using stored_types = std::tuple<std::uint8_t, std::uint8_t, std::int8_t, std::uint16_t,
                                std::int16_t, std::uint32_t, std::int32_t, std::uint64_t,
                                std::int64_t, std::uint16_t, std::uint16_t, float, double>;
template <kind of>
using stored = std::tuple_element_t<static_cast<std::size_t>(of), stored_types>;

template <kind from>
auto value_of(stored<from> item) noexcept {
  if constexpr (from == kind::boolean) {
    return static_cast<std::uint8_t>(item != 0);
  } else if constexpr (from == kind::f16) {
    return float32_of_float16(item);
  } else if constexpr (from == kind::bf16) {
    return float32_of_bfloat16(item);
  } else {
    return item;
  }
}

template <kind to, class Value>
stored<to> item_of(Value value) noexcept {
  if constexpr (to == kind::boolean) {
    return static_cast<std::uint8_t>(value != 0);
  } else if constexpr (to == kind::bf16) {
    return bfloat16_of(static_cast<float>(value));
  } else if constexpr (to == kind::f16 && std::is_same_v<Value, double>) {
    return float16_of(value);
  } else if constexpr (to == kind::f16) {
    return float16_of(static_cast<float>(value));
  } else {
    return static_cast<stored<to>>(value);
  }
}

void move(unsigned char* to, unsigned char const* from, std::size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}

template <kind from, kind to>
void convert(void* __restrict__ target, void const* __restrict__ source, std::size_t items) {
  auto* const put = static_cast<unsigned char*>(target);
  auto const* const get = static_cast<unsigned char const*>(source);
  if constexpr (from == to) {
    move(put, get, items * sizeof(stored<to>));
  } else {
    for (std::size_t i = 0; i < items; ++i) {
      stored<from> item;
      std::memcpy(&item, get + i * sizeof item, sizeof item);
      auto const converted = item_of<to>(value_of<from>(item));
      std::memcpy(put + i * sizeof converted, &converted, sizeof converted);
    }
  }
}

/// The unsigned integer of the same size.
constexpr kind without_sign(kind of) noexcept {
  switch (of) {
    case kind::i8: return kind::u8;
    case kind::i16: return kind::u16;
    case kind::i32: return kind::u32;
    case kind::i64: return kind::u64;
    default: return of;
  }
}

/// Pairs of integers whose conversions do the same to their bits share a function: the sign counts
/// only in the source of a conversion to a larger one.
template <kind from, kind to>
constexpr cast_function shared() noexcept {
  constexpr bool integers = from != kind::boolean && to != kind::boolean && !is_float(to);
  constexpr bool larger = sizeof(stored<from>) < sizeof(stored<to>);
  if constexpr (!has_one_meaning(from, to)) {
    return nullptr;
  } else if constexpr (integers) {
    return convert < larger ? from : without_sign(from), without_sign(to) > ;
  } else {
    return convert<from, to>;
  }
}

template <std::size_t... pairs>
constexpr auto every_pair(std::index_sequence<pairs...> /*numbers*/) noexcept {
  return std::array<cast_function, sizeof...(pairs)>{
      shared<static_cast<kind>(pairs / item_kinds), static_cast<kind>(pairs % item_kinds)>()...};
}

constexpr auto functions = every_pair(std::make_index_sequence<item_kinds * item_kinds>{});

}  // namespace

bool can_cast(item_kind from, item_kind to) noexcept { return has_one_meaning(from, to); }

cast_function plain_cast(item_kind from, item_kind to) {
  auto const pair = static_cast<std::size_t>(from) * item_kinds + static_cast<std::size_t>(to);
  auto const found = functions.at(pair);
  if (found == nullptr) {
    throw std::invalid_argument(std::string{word_of(from)} + " does not become " + word_of(to) +
                                ": what lies outside its range has no one meaning");
  }
  return found;
}

}  // namespace pyxfer
