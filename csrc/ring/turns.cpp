#include "ring/turns.hpp"

#include "cuda/error.hpp"

#include <stdexcept>
#include <utility>

namespace pyxfer {

turns::turn::turn(turn&& other) noexcept
    : line_{std::exchange(other.line_, nullptr)}, number_{other.number_} {}

void turns::turn::await() {
  std::unique_lock held{line_->lock_};
  line_->moved_.wait(held, [this] { return line_->served_ == number_ || line_->abandoned_; });
  if (line_->abandoned_) {
    throw cancelled_error("cancelled before its turn: the ring was abandoned");
  }
}

turns::turn::~turn() {
  if (line_ == nullptr) { return; }
  std::unique_lock held{line_->lock_};
  line_->moved_.wait(held, [this] { return line_->served_ == number_ || line_->abandoned_; });
  ++line_->served_;
  line_->moved_.notify_all();
}

turns::turn turns::take() {
  std::scoped_lock const held{lock_};
  if (closed_) { throw std::logic_error("the ring is closed: make another one"); }
  return {*this, given_++};
}

turns::turn turns::take_last() {
  std::scoped_lock const held{lock_};
  closed_ = true;
  return {*this, given_++};
}

void turns::abandon() noexcept {
  std::scoped_lock const held{lock_};
  closed_ = true;
  abandoned_ = true;
  moved_.notify_all();
}

}  // namespace pyxfer
