#include "stream.hpp"

#include <algorithm>
#include <utility>

#include "device.hpp"
#include "entry.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {
namespace {

constexpr std::chrono::hours longest_pause{1};

}  // namespace

stream_point stream_point::passed_now(std::shared_ptr<stream> on) {
  return {std::move(on), 0, std::make_shared<steady::time_point>(steady::now())};
}

bool stream_point::reached() const { return on->completed_ >= ticket; }

void stream_point::wait() const {
  auto const over = [this] { return reached() || device_lost(on->device_); };
  if (spin_until(over)) return;
  std::unique_lock lock{on->mutex_};
  ++on->waiters_;
  on->work_done_.wait(lock, over);
  --on->waiters_;
}

void stream::run() {
  this_thread().device = device_;
  task next;
  while (take(next)) {
    perform(next);
    // What the work holds (an event's record, a staged copy) is released before a waiter continues.
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
  auto const ended = std::make_shared<steady::time_point>();
  queue_.push_back({std::move(work), std::move(after), epoch_of(device_), steady::now(), ended});
  last_ended_ = ended;
  auto const ticket = ++enqueued_;
  if (worker_sleeps_) work_came_.notify_one();
  return {shared_from_this(), ticket, ended};
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

stream_point stream::last_point() {
  std::scoped_lock const lock{mutex_};
  return {shared_from_this(), enqueued_, last_ended_};
}

bool stream::take(task& next) {
  auto const is_ready = [this] { return enqueued_ != completed_ || retired_; };
  spin_until(is_ready);
  std::unique_lock lock{mutex_};
  worker_sleeps_ = true;
  work_came_.wait(lock, is_ready);
  worker_sleeps_ = false;
  if (queue_.empty()) return false;
  next = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void stream::perform(task const& next) {
  auto ready = std::max(clock_, next.called);
  for (auto const& point : next.after) {
    point.wait();
    if (point.ended && point.reached()) ready = std::max(ready, *point.ended);
  }
  if (hangs(device_)) {
    auto const answers = [&] { return !hangs(device_) || !is_current(next.epoch); };
    while (!answers()) pause_until(steady::now() + longest_pause, answers);
    ready = std::max(ready, steady::now());
  }
  if (is_current(next.epoch)) {
    auto const modelled = next.work({next.epoch, ready});
    ready = std::min(modelled, steady::now());  // a loss ends work before its modelled end
  }
  clock_ = ready;
  *next.ended = clock_;
}

void stream::finish() {
  std::scoped_lock const lock{mutex_};
  ++completed_;
  if (waiters_ > 0) work_done_.notify_all();
}

}  // namespace pyxfer::hostrt
