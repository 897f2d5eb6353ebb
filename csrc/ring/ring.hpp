#pragma once

#include "copy/timed.hpp"
#include "cuda/stream.hpp"
#include "ring/layout.hpp"
#include "ring/queue.hpp"
#include "ring/settings.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace pyxfer {

// clang-format off
/// Moves pageable memory to a device and back at nearly the link's speed: several threads copy it
/// into page-locked slots and out of them, while the copy engine works on the other slots.
///
/// Any thread may call it. Transfers run one at a time, in the order of the calls. A transfer takes
/// as long as the device does; only `cancel`, or its `interrupted`, ends it earlier. `after` is the
/// stream of the caller's other work: the copies wait for what it was given before. Without it they
/// wait for nothing, not even for the ring's own earlier copies. A stream that is being captured
/// into a CUDA graph is refused with std::invalid_argument.
///
/// | field                   | written by                | read by                 | ordered by    |
/// |-------------------------|---------------------------|-------------------------|---------------|
/// | state::queue            | any thread                | any thread              | its own mutex |
/// | state::begins, ::moving | the transfer at the front | the same                | the queue     |
/// | state::abandoned        | `abandon`                 | `close`, the destructor | itself        |
// clang-format on
class ring {
 public:
  ring(int device, ring_settings const& made);
  /// Waits as `close` does. What the device does not release is left to the end of the process.
  ~ring();
  ring(ring const&) = delete;
  ring& operator=(ring const&) = delete;
  ring(ring&&) = delete;
  ring& operator=(ring&&) = delete;

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] ring_settings const& settings() const noexcept { return settings_; }
  /// How an upload of that many bytes is cut.
  [[nodiscard]] chunk_plan plan_for(std::size_t bytes) const noexcept { return {bytes, settings_}; }

  /// Returns when the array has been read, and may be changed; with `wait`, when its bytes are on
  /// the device. Without, later work of `after` waits for them.
  staged upload(layout const& from, std::uintptr_t to, std::optional<stream_view> after, bool wait,
                interruption const& interrupted = {});
  /// Returns when the array has been written. After an error a part of it may have been written.
  staged download(std::uintptr_t from, layout const& to, std::optional<stream_view> after,
                  interruption const& interrupted = {});
  /// Returns at once. The array, the memory on the device and the stream must stay until the ticket
  /// is done, and the array must not be changed; then the bytes are on the device.
  [[nodiscard]] ticket start_upload(layout const& from, std::uintptr_t to,
                                    std::optional<stream_view> after);

  /// From another thread: ends every transfer that was called so far with `cancelled_error`.
  void cancel() noexcept;
  /// Waits for every transfer that was called so far, and releases everything. Throws
  /// `timeout_error`, and releases nothing, where transfers or the device's use of the slots have
  /// not ended after `patience_s`; it can be called again.
  void close(double patience_s = 30);
  /// Leaves everything to the end of the process, because the device no longer answers. Later calls
  /// are refused, and transfers are cancelled.
  void abandon() noexcept;

 private:
  struct state;

  ring_settings settings_;
  int device_;
  std::unique_ptr<state> state_;
};

/// One transfer through a ring between two events on an idle stream, the device drained before and
/// after: as `cudaMemcpy` is timed, which it takes the place of.
[[nodiscard]] sample time_drained(bench& with, ring& through, lane const& along, std::size_t slot);

}  // namespace pyxfer
