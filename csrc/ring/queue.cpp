#include "ring/queue.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <stdexcept>

namespace pyxfer {
namespace {

using seconds_d = std::chrono::duration<double>;

/// Longer waits are limited to this, because nanoseconds could not count them.
constexpr double longest_s = 1e9;

constexpr std::chrono::duration<double> interruption_period{interruption_period_s};

constexpr char const* cancelled_text = "cancelled before the transfer began";

seconds_d limited(double seconds) {
  return seconds_d{seconds > 0 ? std::min(seconds, longest_s) : 0.0};
}

}  // namespace

bool arrival::await(double seconds) const {
  if (!is_recorded_ || has_passed_) { return true; }
  context_guard const guard{context_};
  if (!wait_for(last_, seconds)) { return false; }
  has_passed_ = true;
  return true;
}

bool ticket::done() const {
  note_process();
  if (ends_.wait_for(std::chrono::seconds{0}) != std::future_status::ready) { return false; }
  try {
    return !arrives_ || arrives_->await(0);
  } catch (cuda_error const&) {
    return true;  // `result` throws it
  }
}

staged ticket::result(double seconds) const {
  note_process();
  auto const begin = host_clock::now();
  auto const has_ended = ends_.wait_for(limited(seconds)) == std::future_status::ready;
  auto const left_s = limited(seconds).count() - seconds_between(begin, host_clock::now());
  if (!has_ended || (arrives_ && !arrives_->await(left_s))) {
    std::ostringstream text;
    text << "The upload has not ended within " << seconds
         << " s. It continues: wait again, or cancel the ring's transfers.";
    throw timeout_error(text.str());
  }
  return ends_.get();
}

transfer_queue::transfer_queue() : thread_{start_thread("pyxfer-queue", [this] { serve(); })} {}

transfer_queue::place transfer_queue::enter(interruption const& interrupted) {
  auto const own = std::make_shared<entry>();
  std::unique_lock held{mutex_};
  add(own);
  place found{*this, own};
  await_front(held, *own, interrupted);
  held.unlock();  // the destructor of `place` locks the mutex
  return found;
}

/// Throws with `held` unlocked, because the caller's place then leaves the queue, which locks it.
void transfer_queue::await_front(std::unique_lock<std::mutex>& held, entry& own,
                                 interruption const& interrupted) {
  auto const over = [&] { return own.cancelled || is_front(own); };
  while (!over()) {
    if (!interrupted) {
      moved_.wait(held);
    } else if (moved_.wait_for(held, interruption_period) == std::cv_status::timeout) {
      held.unlock();
      if (interrupted()) { own.cancelled = true; }
      held.lock();
    }
  }
  if (!own.cancelled) { return; }
  held.unlock();
  throw cancelled_error(cancelled_text);
}

ticket transfer_queue::start(job work, std::shared_ptr<arrival const> arrives) {
  auto const own = std::make_shared<entry>();
  own->is_started = true;
  own->work = std::move(work);
  ticket made{own->result.emplace().get_future().share(), std::move(arrives)};
  std::scoped_lock const held{mutex_};
  add(own);
  if (has_work()) { work_came_.notify_one(); }
  return made;
}

void transfer_queue::cancel() noexcept {
  std::scoped_lock const held{mutex_};
  cancel_all();
}

void transfer_queue::abandon() noexcept {
  std::scoped_lock const held{mutex_};
  closed_ = true;
  abandoned_ = true;
  cancel_all();
}

/// Called under the mutex. It completes the tickets, because the queue's thread may be waiting for
/// a device that does not respond.
void transfer_queue::cancel_all() noexcept {
  for (auto const& queued : entries_) {
    queued->cancelled = true;
    if (queued->result && !is_front(*queued)) {
      release_noexcept([&] {
        queued->result->set_exception(std::make_exception_ptr(cancelled_error(cancelled_text)));
      });
      queued->result.reset();
    }
  }
  moved_.notify_all();
}

std::optional<transfer_queue::place> transfer_queue::close(double seconds) {
  auto const until = std::chrono::steady_clock::now() +
                     std::chrono::duration_cast<std::chrono::nanoseconds>(limited(seconds));
  auto const own = std::make_shared<entry>();
  std::unique_lock held{mutex_};
  closed_ = true;
  entries_.push_back(own);
  place found{*this, own};
  auto const over = [&] { return abandoned_ || is_front(*own); };
  auto const in_time = moved_.wait_until(held, until, over);
  auto const left = abandoned_;
  held.unlock();
  if (left) { return std::nullopt; }
  if (!in_time) {
    std::ostringstream text;
    text << "The ring's transfers have not ended within " << seconds
         << " s. The device may have hung: look at nvidia-smi and for Xid in dmesg.";
    throw timeout_error(text.str());
  }
  return found;
}

bool transfer_queue::is_closed() const {
  std::scoped_lock const held{mutex_};
  return closed_;
}

std::size_t transfer_queue::size() const {
  std::scoped_lock const held{mutex_};
  return entries_.size();
}

bool transfer_queue::is_front(entry const& own) const { return entries_.front().get() == &own; }

void transfer_queue::add(entry_ptr const& added) {
  if (closed_) { throw std::logic_error("the ring is closed: make another one"); }
  entries_.push_back(added);
}

void transfer_queue::remove(entry_ptr const& removed) noexcept {
  std::scoped_lock const held{mutex_};
  entries_.erase(std::find(entries_.begin(), entries_.end(), removed));
  if (has_work()) { work_came_.notify_one(); }
  moved_.notify_all();
}

/// Called under the mutex: whether the front entry is a started transfer.
bool transfer_queue::has_work() const { return !entries_.empty() && entries_.front()->is_started; }

void transfer_queue::serve() {
  std::unique_lock held{mutex_};
  while (true) {
    work_came_.wait(held, [this] { return ended_ || has_work(); });
    if (!has_work()) { return; }
    auto const next = entries_.front();
    held.unlock();
    run(next);
    held.lock();
  }
}

/// Before it completes the ticket, it releases what the transfer holds. The next transfer begins
/// after that.
void transfer_queue::run(entry_ptr const& started) {
  staged taken{};
  std::exception_ptr fault;
  try {
    if (started->cancelled) { throw cancelled_error(cancelled_text); }
    taken = started->work(started->cancelled);
  } catch (...) { fault = std::current_exception(); }
  started->work = nullptr;
  std::optional<std::promise<staged>> result;
  {
    std::scoped_lock const held{mutex_};
    result = std::exchange(started->result, std::nullopt);
  }
  if (result && fault) {
    result->set_exception(fault);
  } else if (result) {
    result->set_value(taken);
  }
  remove(started);
}

void transfer_queue::end_thread() noexcept {
  {
    std::scoped_lock const held{mutex_};
    ended_ = true;
  }
  work_came_.notify_one();
  if (thread_.joinable()) { thread_.join(); }
}

}  // namespace pyxfer
