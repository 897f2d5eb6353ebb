#pragma once

#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>

namespace pyxfer {

/// Who uses an object: a number of runs, or nobody ever again. It is one number, so that a run and
/// a close at the same time cannot both find what they look for.
class use_state {
 public:
  [[nodiscard]] bool closed() const noexcept { return users_ == closed_; }
  /// Whether it was open until now. Throws std::logic_error if a run uses `what`.
  bool close(char const* what) {  // NOLINT(modernize-use-nodiscard): most callers only close
    auto none = 0;
    if (users_.compare_exchange_strong(none, closed_)) { return true; }
    if (none != closed_) { throw std::logic_error(std::string{"a run uses "} + what); }
    return false;
  }
  /// The same beside a run that cannot end.
  void abandon() noexcept { users_ = closed_; }

 private:
  friend class in_use;
  static constexpr int closed_ = -1;

  /// Counts one more user beside up to `most`; returns the state before.
  [[nodiscard]] int enter(int most) noexcept {
    auto users = users_.load();
    while (users != closed_ && users <= most && !users_.compare_exchange_weak(users, users + 1)) {}
    return users;
  }
  void leave() noexcept {
    auto users = users_.load();
    while (users != closed_ && !users_.compare_exchange_weak(users, users - 1)) {}
  }

  std::atomic<int> users_{0};
};

/// One user, while it exists.
class in_use {
 public:
  /// Beside up to `most` others. Throws std::invalid_argument if it is closed, and std::logic_error
  /// if there are more.
  in_use(use_state& of, char const* what, int most) : of_{&of} {
    auto const others = of.enter(most);
    if (others == use_state::closed_) {
      throw std::invalid_argument(std::string{what} + " is closed: make another one");
    }
    if (others > most) { throw std::logic_error(std::string{"another run uses "} + what); }
  }
  ~in_use() {
    if (of_ != nullptr) { of_->leave(); }
  }
  in_use(in_use&& other) noexcept : of_{std::exchange(other.of_, nullptr)} {}
  in_use(in_use const&) = delete;
  in_use& operator=(in_use const&) = delete;
  in_use& operator=(in_use&&) = delete;

 private:
  use_state* of_;
};

}  // namespace pyxfer
