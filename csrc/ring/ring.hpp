#pragma once

#include "cuda/stream.hpp"
#include "ring/layout.hpp"
#include "ring/plan.hpp"
#include "ring/settings.hpp"
#include "ring/staged.hpp"
#include "ring/ticket.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace pyxfer {

/// Moves pageable memory to a device and back at nearly the link's speed: several threads copy it
/// into page-locked slots and out of them, while the copy engine is at work on the other slots.
///
/// A ring serves one caller at a time, in the order in which they came, from any thread. A transfer
/// takes as long as the device does; only `cancel` ends it earlier. `after` is the stream of the
/// caller's other work: copies wait for what it has been given before. Where it is none they wait
/// for nothing, not even for the ring's own copies before them.
class ring {
 public:
  ring(int device, ring_settings const& made);
  /// Waits as `close` does; what a device does not let go is left to the end of the process.
  ~ring();
  ring(ring const&) = delete;
  ring& operator=(ring const&) = delete;
  ring(ring&&) = delete;
  ring& operator=(ring&&) = delete;

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] ring_settings const& settings() const noexcept { return settings_; }
  /// How so many bytes that it uploads are cut.
  [[nodiscard]] chunk_plan plan_for(std::size_t bytes) const noexcept { return {bytes, settings_}; }

  /// Returns when the array has been read, and may be changed; with `wait`, when its bytes are on
  /// the device. Without, later work of `after` waits for them.
  staged upload(layout const& from, std::uintptr_t to, std::optional<stream_view> after, bool wait);
  /// Returns when the array has been written. After an error a part of it may be.
  staged download(std::uintptr_t from, layout const& to, std::optional<stream_view> after);
  /// Returns at once. The array, the memory on the device and the stream have to stay until the
  /// ticket is done, and the array must not be changed; then the bytes are on the device.
  [[nodiscard]] ticket start_upload(layout const& from, std::uintptr_t to,
                                    std::optional<stream_view> after);

  /// From another thread: every transfer that was asked for ends soon, with `cancelled_error`.
  void cancel() noexcept;
  /// When every transfer that was asked for has ended. Throws `timeout_error`, and releases
  /// nothing, where the device has not left the slots by then.
  void close(double patience_s = 30);
  /// Leave it to the end of the process: its device no longer answers. Later calls are refused, and
  /// those that wait for their turn are cancelled.
  void abandon() noexcept;

 private:
  struct state;

  ring_settings settings_;
  int device_;
  std::unique_ptr<state> state_;
};

}  // namespace pyxfer
