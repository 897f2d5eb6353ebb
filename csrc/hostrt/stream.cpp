#include "stream.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "control.hpp"
#include "device.hpp"
#include "entry.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {
namespace {

/// Sleeps until the condition holds after a `wake_pauses`.
void await(std::function<bool()> const& ended) {
  constexpr std::chrono::hours longest_pause{1};
  while (!ended()) pause_until(steady::now() + longest_pause, ended);
}

std::atomic<std::uint32_t> connections{0};

/// The last place in each hardware queue, by device, engine and number.
struct hardware_queues {
  std::mutex mutex;
  std::map<std::tuple<int, engine, std::uint32_t>, std::shared_ptr<queue_place>> last;
};

hardware_queues& queues() {
  static auto& all = *new hardware_queues;
  return all;
}

}  // namespace

void set_connections(int count) { connections = static_cast<std::uint32_t>(std::max(count, 0)); }

std::shared_ptr<queue_place> stream::place_for(engine by) const {
  auto const count = connections.load();
  if (count == 0 || by == engine::none) return nullptr;
  std::scoped_lock const lock{queues().mutex};
  auto& last = queues().last[{device_, by, id_ % count}];
  auto made = std::make_shared<queue_place>();
  made->in_front = std::exchange(last, made);
  return made;
}

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

stream_point stream::enqueue(stream_work work, std::vector<stream_point> after, engine by) {
  std::scoped_lock const lock{mutex_};
  auto const ended = std::make_shared<steady::time_point>();
  queue_.push_back(
      {std::move(work), std::move(after), epoch_of(device_), steady::now(), ended, place_for(by)});
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
  auto const dropped = [&] { return !is_current(next.epoch); };
  if (hangs(device_)) {
    await([&] { return !hangs(device_) || dropped(); });
    ready = std::max(ready, steady::now());
  }
  if (next.place != nullptr) {
    if (auto const in_front = std::exchange(next.place->in_front, nullptr); in_front != nullptr) {
      await([&] { return in_front->begun || dropped(); });
    }
    next.place->begun = true;
    wake_pauses();
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
