#pragma once

#include "trace/cupti.hpp"

#include <stdexcept>
#include <string>

namespace pyxfer {

/// The device's records are not available, for the reason in the text. Everything else works
/// without them.
class trace_unavailable_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace trace {

/// A call of the library failed.
class refusal : public trace_unavailable_error {
 public:
  refusal(cupti::functions const& call, char const* name, cupti::result code);

  [[nodiscard]] cupti::result code() const noexcept { return code_; }

 private:
  cupti::result code_;
};

/// The name and the number of a result, such as "CUPTI_ERROR_NOT_INITIALIZED (15)".
[[nodiscard]] std::string text_of(cupti::functions const& call, cupti::result code);

inline void check(cupti::functions const& call, char const* name, cupti::result code) {
  if (code != cupti::result::success) { throw refusal(call, name, code); }
}

/// Explains why a start was refused, and what to do about it.
[[nodiscard]] std::string advice_for(refusal const& refused);

}  // namespace trace
}  // namespace pyxfer
