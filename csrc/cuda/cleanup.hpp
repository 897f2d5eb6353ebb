#pragma once

#include <string>
#include <vector>

namespace pyxfer {

/// A destructor must not throw and must not swallow: what it could not release is noted here, for
/// Python to warn about.
void note_cleanup_failure(char const* text) noexcept;

/// The notes so far; they are forgotten by this call.
[[nodiscard]] std::vector<std::string> take_cleanup_failures();

/// Run a release that may throw inside a destructor.
template <typename Release>
void release_noexcept(Release const& release) noexcept {
  try {
    release();
  } catch (std::exception const& error) { note_cleanup_failure(error.what()); }
}

}  // namespace pyxfer
