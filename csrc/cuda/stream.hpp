#pragma once

#include "cuda/owned_handle.hpp"

#include <cuda.h>

namespace pyxfer {

/// A handle of any library's stream, not owned; nullptr is the legacy default stream.
class stream_view {
 public:
  explicit stream_view(CUstream handle) noexcept : handle_{handle} {}
  [[nodiscard]] CUstream handle() const noexcept { return handle_; }

 private:
  CUstream handle_;
};

/// Whether the device has done all work that was queued on the stream.
[[nodiscard]] bool is_idle(stream_view of);

/// Owns a non-blocking stream: it is not synchronized with the legacy default stream.
class stream : public owned_handle<CUstream> {
 public:
  explicit stream(int device);
  [[nodiscard]] stream_view view() const noexcept { return stream_view{handle()}; }
};

/// What an event is used for: to measure time, or only to order work, which costs the device less.
enum class event_use { clock, order };

/// An event of the driver API, which may be recorded on any library's stream of its device.
class event : public owned_handle<CUevent> {
 public:
  explicit event(int device, event_use use = event_use::clock);

  void record(stream_view on);
  /// Whether the device has passed it.
  [[nodiscard]] bool passed() const;
  /// Seconds from `start` to this; both must have been passed.
  [[nodiscard]] double seconds_since(event const& start) const;
  /// Makes later work on `waiting` wait for the latest record.
  void hold(stream_view waiting) const;
};

}  // namespace pyxfer
