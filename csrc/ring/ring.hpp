#pragma once

#include "copy/timed.hpp"
#include "cuda/stream.hpp"
#include "ring/conversion.hpp"
#include "ring/files.hpp"
#include "ring/layout.hpp"
#include "ring/queue.hpp"
#include "ring/settings.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace pyxfer {

// clang-format off
/// Moves pageable memory to a device and back at nearly the link's speed: several threads copy it
/// into page-locked slots or out of them, while the copy engine uses the other slots.
///
/// Any thread may call it. Transfers run one at a time, in the order of the calls. A transfer has
/// no time limit; `cancel`, or its `interrupted`, ends it early. `after` is the stream of the
/// caller's other work: the copies wait for its earlier work. Without it they wait for nothing, not
/// even for the ring's earlier copies. A stream that is being captured into a CUDA graph is refused
/// with std::invalid_argument.
///
/// | field                   | written by                | read by                 | ordered by    |
/// |-------------------------|---------------------------|-------------------------|---------------|
/// | state::queue            | any thread                | any thread              | its own mutex |
/// | state::small            | `close`                   | uploads at once         | in_use        |
/// | state::begins, ::moving | the transfer at the front | the same                | the queue     |
/// | whether moving is null  | `close`                   | `alert`, uploads        | in_use        |
/// | state::abandoned        | `abandon`                 | `close`, the destructor | itself        |
// clang-format on
class ring {
 public:
  static constexpr double usual_patience_s = 30;
  /// Up to this size an H100 with driver 580 has read pageable memory when the call returns, and
  /// does not wait for the stream's earlier work.
  static constexpr std::size_t most_at_once = std::size_t{1} << 20U;

  ring(int device, ring_settings const& made, double patience_s = usual_patience_s);
  /// Waits like `close`, for `patience_s`. If the device still uses the slots, they are left to the
  /// end of the process.
  ~ring();
  ring(ring const&) = delete;
  ring& operator=(ring const&) = delete;
  ring(ring&&) = delete;
  ring& operator=(ring&&) = delete;

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] ring_settings const& settings() const noexcept { return settings_; }
  /// How an upload of that many bytes is cut into chunks.
  [[nodiscard]] chunk_plan plan_for(std::size_t bytes) const noexcept { return {bytes, settings_}; }

  /// Returns when the array has been read and may be changed, or with `wait` when its bytes are on
  /// the device. Without `wait`, later work of `after` waits for the bytes; without a stream too,
  /// they are on the device after `await_uploads`. `by` is null if the items arrive as they are. If
  /// it has a kernel, `to` is memory for what crosses, which must stay valid as long as the result.
  staged upload(layout const& from, std::uintptr_t to, std::optional<stream_view> after, bool wait,
                interruption const& interrupted = {}, conversion const* by = nullptr);
  /// Returns when the array has been written. After an error it may be written in part.
  staged download(std::uintptr_t from, layout const& to, std::optional<stream_view> after,
                  interruption const& interrupted = {});
  /// Copies a small array by the driver on the caller's own stream, past the transfers of the ring;
  /// when it returns, the array has been read. Without a stream its bytes are on the device after
  /// `await_at_once`. Returns false, without a copy, if the array is larger than `most_at_once` or
  /// may be read later, or if the ring is closed.
  [[nodiscard]] bool upload_at_once(layout const& from, std::uintptr_t to,
                                    std::optional<stream_view> on, conversion const* by = nullptr);
  /// Returns when the uploads at once without a stream, of any thread, have arrived.
  void await_at_once(interruption const& interrupted = {});
  /// The same for uploads through the ring that neither wait nor have a stream.
  void await_uploads(interruption const& interrupted = {});
  /// The same in the other direction. It waits for the stream's earlier work, which `interrupted`
  /// can end, and then for the copy.
  [[nodiscard]] bool download_at_once(std::uintptr_t from, layout const& to, stream_view on,
                                      interruption const& interrupted = {});
  /// Returns at once. When the ticket is done, the bytes are on the device. Until then the array,
  /// the device memory and the stream must stay valid, and the array must not be changed.
  [[nodiscard]] ticket start_upload(layout const& from, std::uintptr_t to,
                                    std::optional<stream_view> after,
                                    std::optional<conversion> const& by = std::nullopt);

  /// Makes the kernels of a conversion, which its first upload would. Throws
  /// `kernels_unavailable_error` if the driver does not make them.
  void prepare(conversion const& by);

  /// The same from files, to the places on the device that the window names. The next transfer
  /// begins when the last bytes have been read, so that the threads need not wait for the copies.
  [[nodiscard]] ticket start_read(std::shared_ptr<file_window const> from,
                                  std::optional<stream_view> after);

  /// Wakes the ring's threads for an upload that comes soon. Any thread may call it.
  void alert();

  /// From another thread: ends every transfer called so far with `cancelled_error`.
  void cancel() noexcept;
  /// Waits for every transfer called so far, and releases everything. If transfers or the device's
  /// use of the slots have not ended after `patience_s`, it releases nothing and throws
  /// `timeout_error`; it can then be called again.
  void close(double patience_s = usual_patience_s);
  /// Leaves everything to the end of the process, because the device does not respond. Transfers
  /// are cancelled, and later calls are refused.
  void abandon() noexcept;

 private:
  struct state;

  [[nodiscard]] std::shared_ptr<event> begin_after(std::optional<stream_view> after) const;

  ring_settings settings_;
  int device_;
  double patience_s_;
  std::unique_ptr<state> state_;
};

/// Times one transfer through a ring between two events on an idle stream. The device is drained
/// before and after it, as for `cudaMemcpy`.
[[nodiscard]] sample time_drained(bench& streams, ring& through, lane const& along,
                                  std::size_t slot);

}  // namespace pyxfer
