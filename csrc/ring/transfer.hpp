#pragma once

#include "copy/lane.hpp"
#include "cuda/event.hpp"
#include "ring/layout.hpp"
#include "ring/plan.hpp"

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>

namespace pyxfer {

/// What is to be moved, between an array and memory of the device that holds its items in C order.
struct staging_request {
  direction way{direction::h2d};
  layout const& array;
  std::uintptr_t device{};
  event const* begins{};            ///< what the copies wait for; null for nothing
  std::optional<stream_view> ends;  ///< whose later work waits for the copies
  bool wait{};                      ///< return when the bytes are there, and not when they are read
  bool beside{};                    ///< the caller's own work, which needs the processors more
};

/// What the threads of one transfer share: the chunks that are left, and the first error.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): apart from what others write
class transfer {
 public:
  /// `stopped` is set where it has to end early: by a thread that fails, or by whoever cancels.
  transfer(staging_request const& moved, chunk_plan const& cut, fill_function by,
           std::atomic<bool>& stopped) noexcept
      : moved_{moved}, plan_{cut}, fill_{by}, stopped_{stopped} {}

  [[nodiscard]] direction way() const noexcept { return moved_.way; }
  [[nodiscard]] chunk_plan const& plan() const noexcept { return plan_; }
  [[nodiscard]] layout const& array() const noexcept { return moved_.array; }
  [[nodiscard]] std::uintptr_t device_at(chunk const& part) const noexcept {
    return moved_.device + part.begin;
  }
  void fill(chunk const& part, void* slot) const {
    moved_.array.read(part.begin, part.end, slot, fill_);
  }
  void empty(chunk const& part, void const* slot) const {
    moved_.array.write(part.begin, part.end, slot, fill_);
  }
  /// Later work on a stream waits for what has to be done before.
  void hold(stream_view waiting) const {
    if (moved_.begins != nullptr) { moved_.begins->hold(waiting); }
  }

  /// The next chunk that nobody has; nothing where none is left, or the transfer has to end.
  [[nodiscard]] std::optional<chunk> claim() noexcept {
    if (is_stopped()) { return std::nullopt; }
    auto const index = next_.fetch_add(1, std::memory_order_relaxed);
    if (index >= plan_.chunks()) { return std::nullopt; }
    return plan_.at(index);
  }

  [[nodiscard]] bool is_stopped() const noexcept {
    return stopped_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::atomic<bool> const& stopped() const noexcept { return stopped_; }

  /// In the handler of an error: the first is kept, and the others stop.
  void fail() noexcept {
    std::scoped_lock const held{lock_};
    if (!fault_) { fault_ = std::current_exception(); }
    stopped_ = true;
  }
  /// When all threads are done.
  void rethrow() const {
    if (fault_) { std::rethrow_exception(fault_); }
  }

 private:
  staging_request const& moved_;
  chunk_plan plan_;
  fill_function fill_;
  std::atomic<bool>& stopped_;
  alignas(cache_line) std::atomic<std::size_t> next_{0};
  alignas(cache_line) std::mutex lock_;
  std::exception_ptr fault_;
};

}  // namespace pyxfer
