#pragma once

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>

namespace pyxfer {

/// Who uses an object: a number of runs, or nobody ever again. It is one number, so that a run and
/// a close at the same time cannot both find what they look for.
class user_count {
 public:
  [[nodiscard]] bool closed() const noexcept { return count_ == closed_; }
  /// Whether it was open until now. Throws std::logic_error if a run uses `what`.
  bool close(char const* what) {  // NOLINT(modernize-use-nodiscard): most callers only close
    auto none = 0;
    if (count_.compare_exchange_strong(none, closed_)) { return true; }
    if (none != closed_) { throw std::logic_error(std::string{"a run uses "} + what); }
    return false;
  }
  /// The same beside a run that cannot end.
  void abandon() noexcept { count_ = closed_; }

  /// Counts a user beside up to `most` others. Throws std::invalid_argument if it is closed, and
  /// std::logic_error if there are more.
  void enter(char const* what, int most) {
    auto users = count_.load();
    do {
      if (users == closed_) {
        throw std::invalid_argument(std::string{what} + " is closed: make another one");
      }
      if (users > most) { throw std::logic_error(std::string{"another run uses "} + what); }
    } while (!count_.compare_exchange_weak(users, users + 1));
  }
  void leave() noexcept {
    auto users = count_.load();
    while (users != closed_ && !count_.compare_exchange_weak(users, users - 1)) {}
  }

 private:
  static constexpr int closed_ = -1;
  std::atomic<int> count_{0};
};

struct leave_users {
  void operator()(user_count* of) const noexcept { of->leave(); }
};

/// One user, while it exists.
using in_use = std::unique_ptr<user_count, leave_users>;

[[nodiscard]] inline in_use enter(user_count& of, char const* what, int most) {
  of.enter(what, most);
  return in_use{&of};
}

}  // namespace pyxfer
