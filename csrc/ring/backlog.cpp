#include "ring/backlog.hpp"

#include <utility>

namespace pyxfer {

backlog::backlog() : thread_{[this] { serve(); }} {}

void backlog::add(task added) {
  {
    std::scoped_lock const held{lock_};
    tasks_.push_back(std::move(added));
  }
  came_.notify_one();
}

void backlog::serve() {
  std::unique_lock held{lock_};
  while (true) {
    came_.wait(held, [this] { return ended_ || !tasks_.empty(); });
    if (tasks_.empty()) { return; }
    auto next = std::move(tasks_.front());
    tasks_.pop_front();
    held.unlock();
    next();
    held.lock();
  }
}

void backlog::close() noexcept {
  {
    std::scoped_lock const held{lock_};
    ended_ = true;
  }
  came_.notify_one();
  if (thread_.joinable()) { thread_.join(); }
}

}  // namespace pyxfer
