#pragma once

#include "activity.hpp"
#include "transfer.hpp"

namespace pyxfer::hostrt {

/// Records the copies of one submission. Copies alike that follow one another are one record with
/// their number, as the real driver merges those of a batch.
class told_copies {
 public:
  explicit told_copies(activity_place const& where) noexcept : where_{where} {}
  ~told_copies() { finish(); }
  told_copies(told_copies const&) = delete;
  told_copies& operator=(told_copies const&) = delete;
  told_copies(told_copies&&) = delete;
  told_copies& operator=(told_copies&&) = delete;

  void add(transfer const& copy, activity_span const& when) noexcept;

 private:
  void finish() noexcept;

  activity_place where_;
  copy_sides sides_;
  activity_span when_;
  bool asynchronous_ = false;
  std::size_t bytes_ = 0;
  std::size_t copies_ = 0;
};

}  // namespace pyxfer::hostrt
