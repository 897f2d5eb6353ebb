#include "ring/conveyor.hpp"

#include "copy/issue.hpp"
#include "cuda/cleanup.hpp"

#include <optional>

namespace pyxfer {
namespace {

/// More at a time would only make the copies smaller.
constexpr std::size_t most_under_way = 3;

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

/// A thread's part: between the array and a slot.
void move(chunk const& part, void* slot, transfer const& shared, double& filled_s) {
  auto const begin = host_clock::now();
  if (shared.way() == direction::h2d) {
    shared.fill(part, slot);
  } else {
    shared.empty(part, slot);
  }
  filled_s += seconds_between(begin, host_clock::now());
}

}  // namespace

conveyor::conveyor(int device, std::uintptr_t slots, ring_settings const& made)
    : slots_{slots}, chunk_bytes_{made.chunk_bytes}, belt_{made}, stream_{device} {
  copies_.reserve(most_under_way);
  for (std::size_t i = 0; i < most_under_way; ++i) {
    copies_.push_back({event{device, event_use::order}, 0});
  }
}

void conveyor::prepare(transfer const& next, std::size_t chunks) {
  settle();
  auto const part = next.way() == direction::h2d ? belt::part::fill : belt::part::empty;
  issued_ = 0;
  taken_ = {};
  // Of a transfer that is stopped nobody claims a chunk.
  if (belt_.round_for(chunks, part) != belt_.round() && !leave(0, next)) { return; }
  retire();
  belt_.begin(chunks, part, under_way() == 0);
  retire();
}

void conveyor::work(transfer& shared) {
  staged own{};
  move_some(shared, shared.plan().chunks(), own);
  add(own);
}

/// Until the last copy: a thread that sleeps meanwhile wakes late. The caller has a chunk ready
/// before anybody else is awake, and empties what those leave who do not wake in time.
bool conveyor::lead(transfer& shared, bool wait) {
  staged own{};
  move_some(shared, shared.plan().is_attended() ? 1 : shared.plan().chunks(), own);
  auto const finished = finish(shared, wait);
  move_some(shared, shared.plan().chunks(), own);
  add(own);
  return finished;
}

void conveyor::move_some(transfer& shared, std::size_t most, staged& own) {
  for (std::size_t moved = 0; moved < most; ++moved) {
    auto const part = shared.claim();
    if (!part) { break; }
    auto const number = belt_.first() + part->index;
    if (!await(number, shared, own.waited_s)) { break; }
    auto* const slot = pointer(slots_ + belt_.slot_of(number) * chunk_bytes_);
    move(*part, slot, shared, own.filled_s);
    belt_.done(number);
    ++own.chunks;
    if (!shared.plan().is_attended()) { drive(shared); }
  }
}

void conveyor::add(staged const& own) {
  std::scoped_lock const held{summing_};
  taken_.chunks += own.chunks;
  taken_.threads += own.chunks != 0 ? 1 : 0;
  taken_.waited_s += own.waited_s;
  taken_.filled_s += own.filled_s;
}

void conveyor::pass_by(transfer const& shared) {
  if (!leave(most_under_way - 1, shared)) { return; }
  copy_between(shared.array().address(), {0, 0, shared.array().bytes()}, shared, belt_.end());
}

/// Waits until so many copies are under way at most; whether it was not stopped.
bool conveyor::leave(std::size_t copies, transfer const& shared) {
  polling const rest;
  for (retire(); under_way() > copies; retire()) {
    if (shared.is_stopped()) { return false; }
    rest.pause();
  }
  return true;
}

/// Whether it was not stopped.
bool conveyor::await(std::uint64_t number, transfer const& shared, double& waited_s) {
  if (belt_.may_begin(number)) { return true; }
  auto const begin = host_clock::now();
  polling const rest;
  while (!belt_.may_begin(number) && !shared.is_stopped()) {
    drive(shared);
    rest.pause();
  }
  waited_s += seconds_between(begin, host_clock::now());
  return !shared.is_stopped();
}

void conveyor::drive(transfer const& shared) {
  std::unique_lock<std::mutex> const held{driving_, std::try_to_lock};
  if (held && !shared.is_stopped()) { look_after(shared); }
}

/// Whether there was something to do.
bool conveyor::look_after(transfer const& shared) {
  auto const ended = retire();
  if (under_way() == most_under_way) { return ended; }
  auto const next = belt_.next(under_way());
  if (next.count == 0) { return ended; }
  issue(next, shared);
  return true;
}

/// Whether a copy has ended.
bool conveyor::retire() {
  auto const before = ended_;
  while (under_way() != 0 && copies_[ended_ % copies_.size()].passed.passed()) {
    belt_.pass(copies_[ended_ % copies_.size()].end);
    ++ended_;
  }
  // Also of chunks that were passed over.
  if (under_way() == 0) { belt_.pass(belt_.issued()); }
  return ended_ != before;
}

void conveyor::issue(belt::run const& taken, transfer const& shared) {
  auto const part =
      shared.plan().from(static_cast<std::size_t>(taken.first - belt_.first()), taken.count);
  auto const slot = slots_ + belt_.slot_of(taken.first) * chunk_bytes_;
  copy_between(slot, part, shared, taken.first + taken.count);
  belt_.issue(taken);
}

void conveyor::copy_between(std::uintptr_t host, chunk const& part, transfer const& shared,
                            std::uint64_t end) {
  if (issued_++ == 0) { shared.hold(stream_.view()); }
  settled_ = false;
  copy_async({shared.way(), host, shared.device_at(part), part.bytes(), 0, 1}, 0, stream_.view());
  record(end);
  settled_ = true;
}

void conveyor::record(std::uint64_t end) {
  auto& next = copies_[begun_ % copies_.size()];
  next.passed.record(stream_.view());
  next.end = end;
  ++begun_;
}

bool conveyor::finish(transfer const& shared, bool wait) {
  std::optional<polling> rest;
  while (true) {
    {
      // Not a lock that is waited for: whoever sleeps for it wakes late.
      std::unique_lock<std::mutex> const held{driving_, std::try_to_lock};
      if (held && belt_.issued() == belt_.end() && (!wait || under_way() == 0)) { return true; }
      if (shared.is_stopped()) { return false; }
      if (held && look_after(shared)) { rest.reset(); }
    }
    if (!rest) { rest.emplace(); }  // who has waited long looks rarely
    rest->pause();
  }
}

staged conveyor::taken() const {
  auto found = taken_;
  found.copies = issued_;
  return found;
}

bool conveyor::wait(double seconds, std::atomic<bool> const* stopped) const {
  return wait_for(last(), seconds, stopped);
}

void conveyor::await_idle(patience const& limit) const {
  if (begun_ != 0) { pyxfer::wait(last(), limit, "the copies of a ring"); }
}

void conveyor::settle() {
  if (settled_) { return; }
  record(belt_.end());
  settled_ = true;
}

void conveyor::close() {
  closing all;
  for (auto& each : copies_) { all.close(each.passed); }
  all.close(stream_);
  all.finish();
}

}  // namespace pyxfer
