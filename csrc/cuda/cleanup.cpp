#include "cuda/cleanup.hpp"

#include "cuda/error.hpp"

#include <mutex>
#include <utility>

namespace pyxfer {
namespace {

struct note_book {
  std::mutex lock;
  std::vector<std::string> notes;
};

/// Never destroyed: owners may be released after static destructors ran.
note_book& book() {
  static auto* const kept = new note_book;
  return *kept;
}

}  // namespace

void note_cleanup_failure(char const* text) noexcept {
  try {
    std::scoped_lock const held{book().lock};
    book().notes.emplace_back(text);
  } catch (std::exception const&) {  // NOLINT(bugprone-empty-catch): out of memory while noting
  }
}

void note_cleanup_failure(std::exception const& error) noexcept {
  auto const* const call = dynamic_cast<cuda_error const*>(&error);
  if (call == nullptr) {
    note_cleanup_failure(error.what());
    return;
  }
  try {
    note_cleanup_failure((std::string{error.what()} + ", at " + call->where()).c_str());
  } catch (std::exception const&) {  // out of memory: without the place
    note_cleanup_failure(error.what());
  }
}

std::vector<std::string> take_cleanup_failures() {
  std::scoped_lock const held{book().lock};
  return std::exchange(book().notes, {});
}

}  // namespace pyxfer
