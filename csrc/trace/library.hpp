#pragma once

#include "trace/cupti.hpp"

#include <functional>
#include <string>

namespace pyxfer::trace {

/// Finds a function of a library by its name; null where there is none.
using symbol_finder = std::function<void*(char const* symbol)>;

/// A library that may be used, and how it is opened. Opening throws std::runtime_error with the
/// reason where that cannot be done.
struct candidate {
  std::string name;
  std::function<symbol_finder()> open;
};

struct library {
  std::string name;
  std::uint32_t version;
  cupti::functions call;
};

/// A shared library of that path or name.
[[nodiscard]] candidate shared_library(std::string const& name);

/// Opens it, and finds its functions. Throws std::runtime_error with the reason where it is not
/// what is needed.
[[nodiscard]] library open(candidate const& wanted);

}  // namespace pyxfer::trace
