#pragma once

#include "trace/cupti.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace pyxfer::trace {

/// Finds a function of a library by its name; returns null if the library does not have it.
using symbol_finder = std::function<void*(char const* symbol)>;

/// A library that may be used. `open` throws std::runtime_error with the reason if it cannot be
/// opened.
struct candidate {
  std::string name;
  std::function<symbol_finder()> open;
};

struct library {
  std::string name;
  std::uint32_t version;
  cupti::functions call;
};

/// A candidate for a shared library with that path or name.
[[nodiscard]] candidate shared_library(std::string const& name);

/// Opens a library and finds its functions. Throws std::runtime_error with the reason if it is not
/// a supported CUPTI.
[[nodiscard]] library open(candidate const& wanted);

/// Chooses one of several libraries: the first that can be opened and is not refused. Whether the
/// driver accepts a library is known only when it is started.
class library_choice {
 public:
  /// Throws `trace_unavailable_error` with the reasons if no library can be opened.
  explicit library_choice(std::vector<candidate> candidates);

  [[nodiscard]] library const& used() const noexcept { return used_; }

  /// Rejects the library in use, and opens the next one. If none is left, starts again with the
  /// first one and throws `trace_unavailable_error` with the reasons.
  void refuse(std::string const& reason);

 private:
  [[nodiscard]] bool open_from(std::size_t first);
  [[noreturn]] void give_up();

  std::vector<candidate> candidates_;
  library used_{};
  std::size_t at_ = 0;
  std::vector<std::string> reasons_;
};

}  // namespace pyxfer::trace
