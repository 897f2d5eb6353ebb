#include "told_copies.hpp"

namespace pyxfer::hostrt {

void told_copies::add(transfer const& copy, activity_span const& when) noexcept {
  if (copies_ != 0 && !(sides_ == copy.sides)) finish();
  if (copies_ == 0) {
    sides_ = copy.sides;
    asynchronous_ = copy.asynchronous;
    when_.begin = when.begin;
  }
  when_.end = when.end;
  bytes_ += copy.bytes;
  ++copies_;
}

void told_copies::finish() noexcept {
  if (copies_ == 0 || where_.correlation == 0) return;
  emit_copy(where_, when_, sides_, bytes_, copies_, asynchronous_);
  copies_ = 0;
  bytes_ = 0;
}

}  // namespace pyxfer::hostrt
