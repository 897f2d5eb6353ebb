#include "ring/chunk_mover.hpp"

#include "copy/lane.hpp"
#include "cuda/cleanup.hpp"
#include "cuda/error.hpp"

#include <optional>

namespace pyxfer {
namespace {

/// More at a time would only make the copies smaller.
constexpr std::size_t most_under_way = 3;

/// A thread of the crew yields its core for this long before it sleeps. The engine needs less time
/// for the chunks of all threads, so a thread sleeps only if the engine has stopped or has not
/// begun.
constexpr double crew_spin_s = 300e-6;
constexpr std::chrono::microseconds crew_nap{500};

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

void copy_chunk(chunk const& part, void* slot, transfer const& shared, double& filled_s) {
  auto const begin = host_clock::now();
  if (shared.way() == direction::h2d) {
    shared.fill(part, slot);
  } else {
    shared.empty(part, slot);
  }
  filled_s += seconds_between(begin, host_clock::now());
}

}  // namespace

chunk_mover::chunk_mover(int device, std::uintptr_t slots, ring_settings const& made,
                         conversion_kernels& converting)
    : slots_{slots},
      chunk_bytes_{made.chunk_bytes},
      order_{made},
      stream_{device},
      converting_{&converting} {
  copies_.reserve(most_under_way);
  for (std::size_t i = 0; i < most_under_way; ++i) {
    copies_.push_back({event{device, event_use::order}, 0});
  }
}

void chunk_mover::prepare(transfer& next, std::size_t chunks) {
  settle();
  auto const part = next.way() == direction::h2d ? slot_order::part::fill : slot_order::part::empty;
  issued_ = 0;
  converted_ = 0;
  totals_ = {};
  if (next.kernel() != nullptr) {
    converting_->prepare(*next.kernel());
    if (!follows_) {
      follows_.emplace(
          followers{stream{stream_.device()}, event{stream_.device(), event_use::order}});
    }
  }
  if (follows_) {
    // Kernels of the previous transfer may read memory that this one writes.
    if (follows_->are_used) { follows_->ended.hold(stream_.view()); }
    follows_->are_used = false;
  }
  auto const most = next.most_slots();
  auto const other_round = order_.round_for(chunks, part, most) != order_.round();
  // An early return means that the transfer is stopped: no thread claims a chunk.
  if (other_round && !await_copies_under_way(0, next)) { return; }
  retire_copies();
  order_.begin(chunks, part, under_way() == 0, most);
  retire_copies();
}

void chunk_mover::run_as_crew(transfer& shared) {
  staged own{};
  move_chunks(shared, shared.plan().chunks(), role::crew, own);
  add(own);
}

/// The caller polls until the last copy, because a thread that sleeps wakes late. It moves a chunk
/// before the crew is awake, and at the end the chunks that no thread of the crew has claimed.
bool chunk_mover::run_as_caller(transfer& shared, bool wait) {
  staged own{};
  auto const first = shared.plan().is_attended() ? 1 : shared.plan().chunks();
  move_chunks(shared, first, role::caller, own);
  auto const finished = finish(shared, wait);
  move_chunks(shared, shared.plan().chunks(), role::caller, own);
  add(own);
  return finished;
}

void chunk_mover::move_chunks(transfer& shared, std::size_t most, role own_role, staged& own) {
  for (auto const end = own.chunks + most; own.chunks < end;) {
    auto const taken = shared.claim();
    if (!taken) { break; }
    for (auto index = taken->first; index < taken->last; ++index) {
      if (!move_chunk(shared, index, own_role, own)) { return; }
    }
    if (!shared.plan().is_attended()) { try_poll_copies(shared); }
  }
}

/// False when the transfer is stopped.
bool chunk_mover::move_chunk(transfer& shared, std::size_t index, role own_role, staged& own) {
  auto const number = order_.first() + index;
  if (!await_slot(number, shared, own_role, own.waited_s)) { return false; }
  auto* const slot = pointer(slots_ + order_.slot_of(number) * chunk_bytes_);
  copy_chunk(shared.plan().at(index), slot, shared, own.filled_s);
  order_.done(number);
  ++own.chunks;
  if (own_role == role::caller) { shared.note_interruption(); }
  return true;
}

void chunk_mover::add(staged const& own) {
  std::scoped_lock const held{summing_};
  totals_.chunks += own.chunks;
  totals_.threads += own.chunks != 0 ? 1 : 0;
  totals_.waited_s += own.waited_s;
  totals_.filled_s += own.filled_s;
}

bool chunk_mover::copy_direct(transfer& shared, bool wait, std::size_t piece_bytes) {
  auto const bytes = shared.bytes();
  for (std::size_t begin = 0; begin < bytes; begin += piece_bytes) {
    if (!await_copies_under_way(most_under_way - 1, shared)) { return false; }
    chunk const piece{0, begin, std::min(bytes, begin + piece_bytes)};
    copy_between(shared.array().address() + begin, piece, shared, order_.end());
  }
  return finish(shared, wait);
}

bool chunk_mover::await_begin(transfer& shared) {
  polling const rest;
  while (shared.begins_late()) {
    if (shared.is_stopped()) { return false; }
    if (rest.pause()) { shared.note_interruption(); }
  }
  return true;
}

/// Polls until at most that many copies are under way; false when the transfer is stopped.
bool chunk_mover::await_copies_under_way(std::size_t most, transfer& shared) {
  polling const rest;
  for (retire_copies(); under_way() > most; retire_copies()) {
    if (shared.is_stopped()) { return false; }
    if (rest.pause()) { shared.note_interruption(); }
  }
  return !shared.is_stopped();
}

/// False when the transfer is stopped.
bool chunk_mover::await_slot(std::uint64_t number, transfer& shared, role own_role,
                             double& waited_s) {
  if (order_.may_begin(number)) { return true; }
  auto const begin = host_clock::now();
  auto const rest = own_role == role::caller ? polling{} : polling{crew_spin_s, crew_nap};
  while (!order_.may_begin(number) && !shared.is_stopped()) {
    try_poll_copies(shared);
    if (rest.pause() && own_role == role::caller) { shared.note_interruption(); }
  }
  waited_s += seconds_between(begin, host_clock::now());
  return !shared.is_stopped();
}

void chunk_mover::try_poll_copies(transfer const& shared) {
  std::unique_lock<std::mutex> const held{polling_, std::try_to_lock};
  if (held && !shared.is_stopped()) { poll_copies(shared); }
}

/// Retires the copies that have ended and issues the next one; returns whether it did either.
bool chunk_mover::poll_copies(transfer const& shared) {
  auto const ended = retire_copies();
  if (under_way() == most_under_way) { return ended; }
  auto const next = order_.next(under_way());
  if (next.count == 0) { return ended; }
  issue(next, shared);
  return true;
}

/// Returns whether a copy has ended.
bool chunk_mover::retire_copies() {
  auto const before = ended_;
  while (under_way() != 0 && copies_[ended_ % copies_.size()].passed.passed()) {
    order_.pass(copies_[ended_ % copies_.size()].end);
    ++ended_;
  }
  // This also passes the chunks that a stopped transfer did not move.
  if (under_way() == 0) { order_.pass(order_.issued()); }
  return ended_ != before;
}

void chunk_mover::issue(slot_order::run const& taken, transfer const& shared) {
  auto const part =
      shared.plan().from(static_cast<std::size_t>(taken.first - order_.first()), taken.count);
  auto const slot = slots_ + order_.slot_of(taken.first) * chunk_bytes_;
  copy_between(slot, part, shared, taken.first + taken.count);
  order_.issue(taken);
}

void chunk_mover::copy_between(std::uintptr_t host, chunk const& part, transfer const& shared,
                               std::uint64_t end) {
  if (issued_++ == 0) { shared.hold(stream_.view()); }
  settled_ = false;
  shared.each_copy(part, [&](std::size_t offset, std::uintptr_t device, std::size_t bytes) {
    copy_async({shared.way(), host + offset, device, bytes, 0, 1}, 0, stream_.view());
  });
  record(end);
  if (shared.kernel() != nullptr) { convert(part, shared); }
  settled_ = true;
}

/// Queues the kernel for the bytes that have crossed since the last one, behind their copy.
void chunk_mover::convert(chunk const& part, transfer const& shared) {
  auto const is_last = part.end == shared.bytes();
  if (part.end - converted_ < converted_piece && !is_last) { return; }
  last().hold(follows_->on.view());
  follows_->are_used = true;
  converting_->launch(*shared.kernel(), shared.device(), converted_, part.end, follows_->on.view());
  follows_->ended.record(follows_->on.view());
  converted_ = part.end;
}

bool chunk_mover::has_converted() const {
  return !follows_ || !follows_->are_used || follows_->ended.passed();
}

void chunk_mover::record(std::uint64_t end) {
  auto& next = copies_[begun_ % copies_.size()];
  next.passed.record(stream_.view());
  next.end = end;
  ++begun_;
}

bool chunk_mover::finish(transfer& shared, bool wait) {
  std::optional<polling> rest;
  while (true) {
    {
      // try_to_lock, because a thread that sleeps for a lock wakes late.
      std::unique_lock<std::mutex> const held{polling_, std::try_to_lock};
      auto const all_issued = held && order_.issued() == order_.end();
      if (all_issued && (!wait || (under_way() == 0 && has_converted()))) { return true; }
      if (shared.is_stopped()) { return false; }
      if (held && poll_copies(shared)) {
        rest.reset();
        shared.note_interruption();
      }
    }
    if (!rest) { rest.emplace(); }  // begins to yield again after every copy
    if (rest->pause()) { shared.note_interruption(); }
  }
}

staged chunk_mover::totals() const {
  auto found = totals_;
  found.copies = issued_;
  return found;
}

void chunk_mover::hold(stream_view waiting) const {
  last().hold(waiting);
  if (follows_ && follows_->are_used) { follows_->ended.hold(waiting); }
}

bool chunk_mover::wait(double seconds, std::atomic<bool> const* cancelled) const {
  if (!wait_for(last(), seconds, cancelled)) { return false; }
  return !follows_ || !follows_->are_used || wait_for(follows_->ended, seconds, cancelled);
}

bool chunk_mover::await_idle(double seconds) const {
  polling const rest;
  while (!is_idle()) {
    if (rest.waited_s() >= seconds) { return false; }
    rest.pause();
  }
  return true;
}

/// Asks the streams, not an event, because the event of a copy may not have been recorded.
bool chunk_mover::is_idle() const {
  auto const status = cudaStreamQuery(stream_.handle());
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // the runtime stores this answer as an error
    return false;
  }
  PYXFER_TRY_STATUS("cudaStreamQuery", status);
  return !follows_ || pyxfer::is_idle(follows_->on.view());
}

void chunk_mover::settle() {
  if (settled_) { return; }
  record(order_.end());
  if (follows_ && follows_->are_used) { follows_->ended.record(follows_->on.view()); }
  settled_ = true;
}

void chunk_mover::close() {
  closing all;
  for (auto& entry : copies_) { all.close(entry.passed); }
  all.close(stream_);
  if (follows_) {
    all.close(follows_->on);
    all.close(follows_->ended);
  }
  all.finish();
}

}  // namespace pyxfer
