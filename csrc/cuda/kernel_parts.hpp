#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace pyxfer {

/// The beginning of a text of kernels for every device that a driver from 525 on knows.
inline constexpr char const* kernel_head = R"(.version 6.0
.target sm_50
.address_size 64
)";

/// A text with a value in place of each mark.
[[nodiscard]] inline std::string with(std::string text, char mark, std::string const& value) {
  for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    text.replace(at, 1, value);
    at += value.size();
  }
  return text;
}

[[nodiscard]] inline std::string with(std::string text, char mark, std::uint64_t value) {
  return with(std::move(text), mark, std::to_string(value));
}

}  // namespace pyxfer
