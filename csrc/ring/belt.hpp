#pragma once

#include "ring/settings.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyxfer {

// clang-format off
/// The order of a ring's slots. Threads fill or empty slots, and the copy engine has the other
/// part. Chunks are numbered through over all transfers; a chunk's number says which slot it uses.
///
/// The engine takes as many slots at a time as are ready together: few while it has nothing else to
/// do, and more the more it has, because the start of a copy costs it as much as some hundred
/// kilobytes.
///
/// What threads fill cycles through a part of the slots, so that they are still in a cache when
/// their turn comes again. What they empty cycles through all, so that the engine does not write to
/// lines that a core has just read.
///
/// | field                                  | written by               | read by      | ordered by                                |
/// |----------------------------------------|--------------------------|--------------|-------------------------------------------|
/// | of_threads_, round_, first_            | `begin`                  | every thread | the crew wakes later, and has returned    |
/// | marks_                                 | threads done with a slot | who polls    | release in `done`, acquire in `next`      |
/// | passed_                                | who polls                | every thread | release in `pass`, acquire in `may_begin` |
/// | end_, front_, issued_, grown_, few_... | who polls, `begin`       | the same     | conveyor::polling_                        |
// clang-format on
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): apart from what others write
class belt {
 public:
  enum class part { fill, empty };  ///< what the threads do with a slot
  struct run {
    std::uint64_t first;  ///< number of a chunk
    std::size_t count;
  };

  explicit belt(ring_settings const& made);

  /// Number of slots that a transfer cycles through. Where it changes, the copies of the transfer
  /// before must have ended.
  [[nodiscard]] std::size_t round_for(std::size_t chunks, part of_threads) const noexcept;
  [[nodiscard]] std::size_t round() const noexcept { return round_; }
  /// Begins a transfer, when the threads of the one before have returned. Chunks that it has left
  /// are passed over. Where the engine is `idle`, filling starts in the first slots again.
  void begin(std::size_t chunks, part of_threads, bool idle);
  [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
  [[nodiscard]] std::size_t slot_of(std::uint64_t number) const noexcept {
    return static_cast<std::size_t>(number % round_);
  }

  /// For any thread: whether the engine has left the slot of this chunk to the threads.
  [[nodiscard]] bool may_begin(std::uint64_t number) const noexcept;
  /// For any thread: it has filled or emptied the slot of this chunk.
  void done(std::uint64_t number) noexcept;

  /// For the thread that polls: the slots that the next copy should take, now that this many copies
  /// are under way; maybe none.
  [[nodiscard]] run next(std::size_t copies_under_way) noexcept;
  /// The copy of that run is under way.
  void issue(run const& taken) noexcept;
  [[nodiscard]] std::uint64_t issued() const noexcept { return issued_; }
  [[nodiscard]] std::uint64_t end() const noexcept { return end_; }
  /// Copies of all chunks before this number have ended.
  void pass(std::uint64_t number) noexcept { passed_.store(number, std::memory_order_release); }

 private:
  [[nodiscard]] std::size_t ready() const noexcept;
  [[nodiscard]] std::size_t most_at_once() const noexcept;
  [[nodiscard]] std::size_t wanted(std::size_t copies_under_way) const noexcept;

  [[nodiscard]] std::size_t in_slots(std::size_t bytes, std::size_t shares) const noexcept;

  std::size_t slots_;
  std::size_t chunk_bytes_;
  /// By slot: one more than the number of the chunk with which the threads are done.
  std::vector<std::atomic<std::uint64_t>> marks_;
  part of_threads_{part::fill};
  std::size_t round_;
  std::uint64_t first_{};

  // What changes with every copy lies apart from what every thread reads with every chunk.
  alignas(cache_line) std::atomic<std::uint64_t> passed_{0};
  alignas(cache_line) std::uint64_t end_{};
  std::uint64_t front_{};   ///< the threads are done with all before
  std::uint64_t issued_{};  ///< the engine was given all before
  std::size_t grown_{};     ///< of a download, what the next copy may take
  std::size_t few_{};       ///< while another copy is under way
  std::size_t many_{};      ///< while several are
  std::size_t most_{};
};

}  // namespace pyxfer
