#pragma once

#include <atomic>
#include <stdexcept>
#include <string>

namespace pyxfer {

/// Counts the runs that use an object, so that none closes it under them.
class use_count {
 public:
  /// Throws std::logic_error if a run uses `what`.
  void require_none(char const* what) const {
    if (users_ != 0) { throw std::logic_error(std::string{"a run uses "} + what); }
  }
  /// The same when the caller itself is a user.
  void require_no_other(char const* what) const {
    if (users_ != 1) { throw std::logic_error(std::string{"another run uses "} + what); }
  }

 private:
  friend class in_use;
  std::atomic<int> users_{0};
};

/// Counts as one user while it exists.
class in_use {
 public:
  explicit in_use(use_count& of) noexcept : of_{&of.users_} { ++*of_; }
  ~in_use() {
    if (of_ != nullptr) { --*of_; }
  }
  in_use(in_use&& other) noexcept : of_{other.of_} { other.of_ = nullptr; }
  in_use(in_use const&) = delete;
  in_use& operator=(in_use const&) = delete;
  in_use& operator=(in_use&&) = delete;

 private:
  std::atomic<int>* of_;
};

}  // namespace pyxfer
