#pragma once

#include <exception>
#include <string>
#include <vector>

namespace pyxfer {

/// A destructor must not throw and must not swallow: what it could not release is noted here, for
/// Python to warn about.
void note_cleanup_failure(char const* text) noexcept;

/// The same for an error, with the place of the call that failed.
void note_cleanup_failure(std::exception const& error) noexcept;

/// The notes so far; they are forgotten by this call.
[[nodiscard]] std::vector<std::string> take_cleanup_failures();

/// Run a release that may throw inside a destructor.
template <typename Release>
void release_noexcept(Release const& release) noexcept {
  try {
    release();
  } catch (std::exception const& error) { note_cleanup_failure(error); }
}

/// Closes every one of several owners, whatever becomes of the others; throws the first error when
/// all have been tried, and notes the rest.
class closing {
 public:
  template <typename Owner>
  void close(Owner& owned) noexcept {
    try {
      owned.close();
    } catch (std::exception const& error) { keep(error); }
  }
  void finish() const {
    if (first_) { std::rethrow_exception(first_); }
  }

 private:
  /// In the handler of the error.
  void keep(std::exception const& error) noexcept {
    if (first_) {
      note_cleanup_failure(error);
    } else {
      first_ = std::current_exception();
    }
  }

  std::exception_ptr first_;
};

}  // namespace pyxfer
