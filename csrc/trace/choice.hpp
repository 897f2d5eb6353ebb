#pragma once

#include "trace/library.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace pyxfer::trace {

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
