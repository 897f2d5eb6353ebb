#include "ring/slot_order.hpp"

#include <algorithm>

namespace pyxfer {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t few_bytes = 512 * kib;
constexpr std::size_t many_bytes = 4096 * kib;
constexpr std::size_t most_bytes = 8192 * kib;

/// With fewer slots, threads would wait for the engine to leave them; more do not stay in the
/// cache.
constexpr std::size_t least_round_bytes = 8192 * kib;
constexpr std::size_t rounds = 8;

}  // namespace

slot_order::slot_order(ring_settings const& made)
    : slots_{static_cast<std::size_t>(made.slots)},
      chunk_bytes_{made.chunk_bytes},
      marks_(slots_),
      round_{slots_} {}

std::size_t slot_order::round_for(std::size_t chunks, part of_threads,
                                  std::size_t most) const noexcept {
  if (of_threads == part::empty) { return slots_; }
  constexpr std::size_t least = least_ring_slots;
  auto const wanted = std::max({chunks / rounds, least_round_bytes / chunk_bytes_, least});
  return std::min({slots_, wanted, std::max(most, least)});
}

void slot_order::begin(std::size_t chunks, part of_threads, bool idle, std::size_t most) {
  of_threads_ = of_threads;
  round_ = round_for(chunks, of_threads, most);
  if (idle && of_threads == part::fill) { end_ += (round_ - end_ % round_) % round_; }
  few_ = in_slots(few_bytes, 16);
  many_ = in_slots(many_bytes, 4);
  most_ = in_slots(most_bytes, 2);
  grown_ = few_;
  first_ = front_ = issued_ = end_;
  end_ += chunks;
}

/// The number of slots that hold `bytes`, but at most a share of the round, so that threads can use
/// the other slots at the same time.
std::size_t slot_order::in_slots(std::size_t bytes, std::size_t shares) const noexcept {
  return std::clamp<std::size_t>(bytes / chunk_bytes_, 1,
                                 std::max<std::size_t>(1, round_ / shares));
}

bool slot_order::may_begin(std::uint64_t number) const noexcept {
  auto const passed = passed_.load(std::memory_order_acquire);
  return of_threads_ == part::fill ? number < passed + round_ : number < passed;
}

void slot_order::done(std::uint64_t number) noexcept {
  marks_[slot_of(number)].store(number + 1, std::memory_order_release);
}

slot_order::run slot_order::next(std::size_t copies_under_way) noexcept {
  while (front_ != end_ && marks_[slot_of(front_)].load(std::memory_order_acquire) == front_ + 1) {
    ++front_;
  }
  auto const found = ready();
  if (found < wanted(copies_under_way) && found != end_ - issued_) { return {issued_, 0}; }
  auto const before_the_first_slot = round_ - slot_of(issued_);
  return {issued_, std::min({found, before_the_first_slot, most_at_once()})};
}

void slot_order::issue(run const& taken) noexcept {
  issued_ += taken.count;
  grown_ = std::min(2 * grown_, most_);
}

/// The number of slots that the engine may take: full ones when threads fill, empty ones when they
/// empty.
std::size_t slot_order::ready() const noexcept {
  if (of_threads_ == part::fill) { return static_cast<std::size_t>(front_ - issued_); }
  return static_cast<std::size_t>(std::min(front_ + round_, end_) - issued_);
}

/// If threads empty the slots, the first copies are small, so that the threads can begin early, and
/// so are the last ones, so that the threads end together.
std::size_t slot_order::most_at_once() const noexcept {
  if (of_threads_ == part::fill) { return most_; }
  auto const half = static_cast<std::size_t>(end_ - issued_) / 2;
  return std::min(grown_, std::max<std::size_t>(half, 1));
}

std::size_t slot_order::wanted(std::size_t copies_under_way) const noexcept {
  if (copies_under_way == 0) { return 1; }
  return std::min(copies_under_way == 1 ? few_ : many_, most_at_once());
}

}  // namespace pyxfer
