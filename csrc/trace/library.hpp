#pragma once

#include "trace/cupti.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

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

/// Which of several libraries is used: the first that can be opened and that is not refused. Which
/// the driver takes shows only when one is started.
class library_choice {
 public:
  /// Throws `trace_unavailable_error` with the reason of each where none can be opened.
  explicit library_choice(std::vector<candidate> candidates);

  [[nodiscard]] library const& used() const noexcept { return used_; }

  /// Goes on to the next one. Where there is none, throws the same error, and begins anew.
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
