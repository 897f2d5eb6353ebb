#pragma once

#include <cstddef>
#include <string>

namespace pyxfer {

/// The format of a number in an array.
enum class item_kind : unsigned char {
  boolean,
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  f16,
  bf16,
  f32,
  f64
};
inline constexpr std::size_t item_kinds = 13;

/// NumPy's name, such as "float32", or "bfloat16". Throws std::invalid_argument for another.
[[nodiscard]] item_kind item_kind_of(std::string const& word);
[[nodiscard]] char const* word_of(item_kind kind) noexcept;
[[nodiscard]] std::size_t bytes_of(item_kind kind) noexcept;

}  // namespace pyxfer
