#pragma once

#include <exception>
#include <string>
#include <vector>

namespace pyxfer {

/// Notes that a destructor could not release something. It must neither throw nor ignore the error:
/// Python warns of the notes later.
void note_cleanup_failure(char const* text) noexcept;

/// The same for an error, with the source line of the call that failed.
void note_cleanup_failure(std::exception const& error) noexcept;

/// Returns the notes so far, and removes them.
[[nodiscard]] std::vector<std::string> take_cleanup_failures();

/// Runs a release that may throw, inside a destructor.
template <typename Release>
void release_noexcept(Release const& release) noexcept {
  try {
    release();
  } catch (std::exception const& error) { note_cleanup_failure(error); }
}

/// Closes several owners. `finish` throws the first error, after all were tried; later errors are
/// noted.
class closing {
 public:
  template <typename Owner>
  void close(Owner& owned) noexcept {
    run([&owned] { owned.close(); });
  }
  /// The same for anything else that ends with them.
  template <typename Action>
  void run(Action const& action) noexcept {
    try {
      action();
    } catch (std::exception const& error) { keep(error); }
  }
  void finish() const {
    if (first_) { std::rethrow_exception(first_); }
  }

 private:
  /// Called in the handler of the error.
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
