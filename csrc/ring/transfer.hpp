#pragma once

#include "copy/lane.hpp"
#include "cuda/stream.hpp"
#include "cuda/wait.hpp"
#include "ring/conversion.hpp"
#include "ring/files.hpp"
#include "ring/layout.hpp"
#include "ring/queue.hpp"
#include "ring/settings.hpp"
#include "ring/slot_order.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>

namespace pyxfer {

/// A transfer between an array and device memory that holds its items in C order, or from files to
/// several places on the device.
struct staging_request {
  direction way{direction::h2d};
  layout const& array;
  std::uintptr_t device{};
  event const* begins{};            ///< the copies wait for it; null if they wait for nothing
  std::optional<stream_view> ends;  ///< its later work waits for the copies
  bool wait{};                      ///< return when the bytes have arrived, not when they are read
  bool beside{};                    ///< runs beside the caller's own work, so with few threads
  /// Called by the caller's thread; null if nothing can interrupt the transfer.
  interruption const* interrupted{};
  file_window const* files{};    ///< if not null, the source in place of the array
  conversion const* converts{};  ///< null if the items arrive as they are
  arrival* arrives{};            ///< recorded behind the copies; null if no ticket waits for it

  /// Bytes that cross.
  [[nodiscard]] std::size_t bytes() const noexcept {
    if (files != nullptr) { return files->bytes(); }
    return converts != nullptr ? converts->crossing_bytes(array.bytes()) : array.bytes();
  }
  [[nodiscard]] bool casts_on_host() const noexcept {
    return converts != nullptr && converts->casts_on_host;
  }
  [[nodiscard]] bool has_kernel() const noexcept {
    return converts != nullptr && converts->has_kernel();
  }
};

// clang-format off
/// State that the threads of one transfer share: the remaining chunks, the first error, and whether
/// to end early.
///
/// | field      | written by                 | read by             | ordered by                        |
/// |------------|----------------------------|---------------------|-----------------------------------|
/// | next_      | every thread, by fetch_add | the same            | relaxed: only the number counts   |
/// | fault_     | the first thread to fail   | the caller          | lock_; the crew has returned      |
/// | failed_    | threads that fail          | every thread        | relaxed: it only asks them to end |
/// | cancelled_ | any thread that cancels    | every thread        | relaxed, likewise                 |
/// | asked_     | the caller's thread        | the caller's thread | one thread                        |
// clang-format on
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): apart from what others write
class transfer {
 public:
  transfer(staging_request const& moved, chunk_plan const& cut, fill_function by,
           std::atomic<bool>& cancelled, host_clock::time_point begun = host_clock::now()) noexcept
      : moved_{moved},
        plan_{cut},
        chunks_a_claim_{moved.beside ? cut.chunks_beside() : 1},
        fill_{by},
        cancelled_{cancelled},
        asked_{begun} {}

  [[nodiscard]] direction way() const noexcept { return moved_.way; }
  [[nodiscard]] chunk_plan const& plan() const noexcept { return plan_; }
  [[nodiscard]] layout const& array() const noexcept { return moved_.array; }
  /// Calls `copy(offset in the chunk, device address, bytes)` for each copy that it takes.
  template <typename Copy>
  void each_copy(chunk const& part, Copy const& copy) const {
    if (moved_.files != nullptr) {
      moved_.files->each_part(part.begin, part.end, copy);
    } else {
      copy(std::size_t{0}, moved_.device + part.begin, part.bytes());
    }
  }
  /// Number of slots that it should cycle through at most. A disk fills a few that stay in the
  /// processor's caches faster: 2.3 GB/s in 5 MiB of slots, 1.6 in 32 MiB (virtual machine with an
  /// H200, virtio).
  [[nodiscard]] std::size_t most_slots() const {
    if (moved_.files == nullptr || moved_.files->is_cached()) { return slot_order::every_slot; }
    return static_cast<std::size_t>(plan_.threads()) + spare_slots;
  }
  static constexpr std::size_t spare_slots = 4;
  void fill(chunk const& part, void* slot) const {
    if (moved_.files != nullptr) {
      moved_.files->read(part.begin, part.end, slot);
    } else if (moved_.casts_on_host()) {
      read_converted(moved_.array, *moved_.converts, part.begin, part.end, slot);
    } else {
      moved_.array.read(part.begin, part.end, slot, fill_);
    }
  }
  void empty(chunk const& part, void const* slot) const {
    moved_.array.write(part.begin, part.end, slot, fill_);
  }
  /// The conversion whose kernels follow the copies; null if there are none.
  [[nodiscard]] conversion const* kernel() const noexcept {
    return moved_.has_kernel() ? moved_.converts : nullptr;
  }
  [[nodiscard]] std::uintptr_t device() const noexcept { return moved_.device; }
  [[nodiscard]] std::size_t bytes() const noexcept { return moved_.bytes(); }
  /// Whether the work that the copies wait for has not ended yet.
  [[nodiscard]] bool begins_late() const {
    return moved_.begins != nullptr && !moved_.begins->passed();
  }
  /// Makes later work of a stream wait for the work that the copies wait for.
  void hold(stream_view waiting) const {
    if (moved_.begins != nullptr) { moved_.begins->hold(waiting); }
  }

  /// The numbers of adjacent chunks, [first, last).
  struct claimed {
    std::size_t first;
    std::size_t last;
  };
  /// Takes the next chunks; nothing if none is left or the transfer is stopped.
  [[nodiscard]] std::optional<claimed> claim() noexcept {
    if (is_stopped()) { return std::nullopt; }
    auto const index = next_.fetch_add(chunks_a_claim_, std::memory_order_relaxed);
    if (index >= plan_.chunks()) { return std::nullopt; }
    return claimed{index, std::min(index + chunks_a_claim_, plan_.chunks())};
  }

  [[nodiscard]] bool is_stopped() const noexcept {
    return failed_.load(std::memory_order_relaxed) || is_cancelled();
  }
  [[nodiscard]] bool is_cancelled() const noexcept {
    return cancelled_.load(std::memory_order_relaxed);
  }
  /// For the caller's thread, after each chunk and each sleep: cancels the transfer if
  /// `interrupted` says so. It is not called while polling a short copy, because reading the clock
  /// would delay it.
  void note_interruption() {
    if (moved_.interrupted == nullptr || !*moved_.interrupted) { return; }
    auto const now = host_clock::now();
    if (seconds_between(asked_, now) < interruption_period_s) { return; }
    asked_ = now;
    if ((*moved_.interrupted)()) { cancelled_ = true; }
  }

  /// Called in the handler of an error: keeps the first error, and stops the other threads.
  void fail() noexcept {
    std::scoped_lock const held{lock_};
    if (!fault_) { fault_ = std::current_exception(); }
    failed_ = true;
  }
  /// Call it after all threads have returned.
  void rethrow() const {
    if (fault_) { std::rethrow_exception(fault_); }
  }

 private:
  staging_request const& moved_;
  chunk_plan plan_;
  std::size_t chunks_a_claim_;
  fill_function fill_;
  std::atomic<bool>& cancelled_;
  host_clock::time_point asked_;
  alignas(cache_line) std::atomic<std::size_t> next_{0};
  alignas(cache_line) std::atomic<bool> failed_{false};
  std::mutex lock_;
  std::exception_ptr fault_;
};

}  // namespace pyxfer
