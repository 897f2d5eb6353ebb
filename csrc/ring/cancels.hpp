#pragma once

#include <atomic>
#include <cstdint>

namespace pyxfer {

/// Ends the transfer that is under way, and those that wait for their turn: whatever came before
/// somebody cancelled.
class cancels {
 public:
  /// For whoever comes: which of them will be too early for him.
  [[nodiscard]] std::uint64_t so_far() const noexcept { return count_; }

  void cancel() noexcept {
    ++count_;
    stopped_ = true;
  }
  /// When the turn has come of who found `before` of them.
  void begin(std::uint64_t before) noexcept {
    stopped_ = false;
    if (happened_since(before)) { stopped_ = true; }
  }
  [[nodiscard]] bool happened_since(std::uint64_t before) const noexcept {
    return count_ != before;
  }
  /// What the threads of the transfer look at.
  [[nodiscard]] std::atomic<bool>& stopped() noexcept { return stopped_; }

 private:
  std::atomic<std::uint64_t> count_{0};
  std::atomic<bool> stopped_{false};
};

}  // namespace pyxfer
