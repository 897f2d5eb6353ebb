#pragma once

#include <string_view>

namespace pyxfer::hostrt {

/// The driver call of that name; null when this library has none.
[[nodiscard]] void* driver_function(std::string_view symbol) noexcept;

}  // namespace pyxfer::hostrt
