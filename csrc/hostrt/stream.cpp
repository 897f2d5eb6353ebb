#include "stream.hpp"

#include <utility>

#include "loss.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {

bool stream_point::reached() const { return on->completed_ >= ticket; }

void stream_point::wait() const {
  auto const over = [this] { return reached() || device_lost(); };
  if (spin_until(over)) return;
  std::unique_lock lock{on->mutex_};
  ++on->waiters_;
  on->work_done_.wait(lock, over);
  --on->waiters_;
}

void stream::run() {
  task next;
  while (take(next)) {
    perform(next);
    // What the work holds (an event's record, a staged copy) must be gone before a waiter goes on.
    next = {};
    finish();
  }
}

void stream::await_room() {
  auto const queued = enqueued_.load();
  if (queued < most_queued) return;
  stream_point{shared_from_this(), queued + 1 - most_queued}.wait();
}

stream_point stream::enqueue(stream_work work, std::vector<stream_point> after) {
  std::scoped_lock const lock{mutex_};
  queue_.push_back({std::move(work), std::move(after), loss_epoch()});
  auto const ticket = ++enqueued_;
  if (worker_sleeps_) work_came_.notify_one();
  return {shared_from_this(), ticket};
}

void stream::retire() {
  std::scoped_lock const lock{mutex_};
  retired_ = true;
  work_came_.notify_one();
}

void stream::wake() {
  std::scoped_lock const lock{mutex_};
  work_done_.notify_all();
}

stream_point stream::last_point() { return {shared_from_this(), enqueued_}; }

bool stream::take(task& next) {
  auto const has_news = [this] { return enqueued_ != completed_ || retired_; };
  spin_until(has_news);
  std::unique_lock lock{mutex_};
  worker_sleeps_ = true;
  work_came_.wait(lock, has_news);
  worker_sleeps_ = false;
  if (queue_.empty()) return false;
  next = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void stream::perform(task const& next) {
  for (auto const& point : next.after) point.wait();
  if (next.work && is_current(next.epoch)) next.work(next.epoch);
}

void stream::finish() {
  std::scoped_lock const lock{mutex_};
  ++completed_;
  if (waiters_ > 0) work_done_.notify_all();
}

}  // namespace pyxfer::hostrt
