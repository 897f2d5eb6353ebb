#pragma once

#include "ring/settings.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyxfer {

// clang-format off
/// The order of a ring's slots. In an upload threads fill slots, which the copy engine then reads;
/// in a download the engine fills them and threads empty them. Chunks are numbered consecutively
/// over all transfers; the number of a chunk determines its slot.
///
/// One copy of the engine takes several adjacent slots that are ready. It takes few while the
/// engine is idle, and more while it is busy, because the start of a copy costs as much time as
/// some hundred kilobytes.
///
/// Uploads cycle through a part of the slots, which are then still in a cache when they are used
/// again. Downloads cycle through all slots, so that the engine does not write to lines that a core
/// has just read.
///
/// | field                                  | written by               | read by      | ordered by                                |
/// |----------------------------------------|--------------------------|--------------|-------------------------------------------|
/// | of_threads_, round_, first_            | `begin`                  | every thread | the crew wakes later, and has returned    |
/// | marks_                                 | threads done with a slot | who polls    | release in `done`, acquire in `next`      |
/// | passed_                                | who polls                | every thread | release in `pass`, acquire in `may_begin` |
/// | end_, front_, issued_, grown_, few_... | who polls, `begin`       | the same     | chunk_mover::polling_                     |
// clang-format on
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): apart from what others write
class slot_order {
 public:
  enum class part { fill, empty };  ///< what the threads do with a slot
  struct run {
    std::uint64_t first;  ///< number of a chunk
    std::size_t count;
  };

  /// No limit of the number of slots that a transfer cycles through.
  static constexpr std::size_t every_slot = most_ring_slots;

  explicit slot_order(ring_settings const& made);

  /// Number of slots that a transfer cycles through, at most `most`. Before it changes, the copies
  /// of the previous transfer must have ended.
  [[nodiscard]] std::size_t round_for(std::size_t chunks, part of_threads,
                                      std::size_t most = every_slot) const noexcept;
  [[nodiscard]] std::size_t round() const noexcept { return round_; }
  /// Begins a transfer, after the threads of the previous one have returned. Chunks that it did not
  /// move are skipped. If the engine is `idle`, filling starts in the first slots again.
  void begin(std::size_t chunks, part of_threads, bool idle, std::size_t most = every_slot);
  [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
  [[nodiscard]] std::size_t slot_of(std::uint64_t number) const noexcept {
    return static_cast<std::size_t>(number % round_);
  }

  /// For any thread: whether the engine has finished with the slot of this chunk.
  [[nodiscard]] bool may_begin(std::uint64_t number) const noexcept;
  /// For any thread: marks the slot of this chunk as filled or emptied.
  void done(std::uint64_t number) noexcept;

  /// For the thread that polls: the slots that the next copy should take, possibly none. It depends
  /// on the number of copies that are under way.
  [[nodiscard]] run next(std::size_t copies_under_way) noexcept;
  /// For the thread that polls: notes that the copy of that run is under way.
  void issue(run const& taken) noexcept;
  [[nodiscard]] std::uint64_t issued() const noexcept { return issued_; }
  [[nodiscard]] std::uint64_t end() const noexcept { return end_; }
  /// For the thread that polls: notes that the copies of all chunks before this number have ended.
  void pass(std::uint64_t number) noexcept { passed_.store(number, std::memory_order_release); }

 private:
  [[nodiscard]] std::size_t ready() const noexcept;
  [[nodiscard]] std::size_t most_at_once() const noexcept;
  [[nodiscard]] std::size_t wanted(std::size_t copies_under_way) const noexcept;

  [[nodiscard]] std::size_t in_slots(std::size_t bytes, std::size_t shares) const noexcept;

  std::size_t slots_;
  std::size_t chunk_bytes_;
  /// For each slot: one more than the number of the chunk that the threads last finished there.
  std::vector<std::atomic<std::uint64_t>> marks_;
  part of_threads_{part::fill};
  std::size_t round_;
  std::uint64_t first_{};

  // In other cache lines: these change with every copy, and every thread reads the ones above with
  // every chunk.
  alignas(cache_line) std::atomic<std::uint64_t> passed_{0};
  alignas(cache_line) std::uint64_t end_{};
  std::uint64_t front_{};   ///< the threads have finished all chunks before it
  std::uint64_t issued_{};  ///< copies of all chunks before it were issued
  std::size_t grown_{};     ///< most slots of the next copy, in a download
  std::size_t few_{};       ///< slots to wait for while another copy is under way
  std::size_t many_{};      ///< the same while several are
  std::size_t most_{};
};

}  // namespace pyxfer
