#pragma once

namespace pyxfer::hostrt {

struct error_text {
  int code;
  char const* runtime_name;
  char const* driver_name;  ///< null when only the runtime has this code
  char const* text;
};

/// Null for a code that is not known.
[[nodiscard]] error_text const* find_error(int code) noexcept;

}  // namespace pyxfer::hostrt
