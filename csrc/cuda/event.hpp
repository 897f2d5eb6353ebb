#pragma once

#include "cuda/stream.hpp"

#include <cuda.h>

#include <atomic>

namespace pyxfer {

/// What an event is used for: to measure time, or only to order work, which costs the device less.
enum class event_use { clock, order };

/// An event of the driver API, which may be recorded on any library's stream of its device.
class event {
 public:
  explicit event(int device, event_use use = event_use::clock);
  ~event();
  event(event&& other) noexcept;
  event& operator=(event&& other) = delete;
  event(event const&) = delete;
  event& operator=(event const&) = delete;

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] CUevent handle() const noexcept { return handle_; }

  void record(stream_view on);
  /// Whether the device has passed it.
  [[nodiscard]] bool passed() const;
  /// Seconds from `start` to this; both must have been passed.
  [[nodiscard]] double seconds_since(event const& start) const;
  /// Makes later work on `waiting` wait for the latest record.
  void hold(stream_view waiting) const;

  /// Destroys it. If several threads call this, one of them does.
  void close();
  void abandon() noexcept { handle_ = nullptr; }

 private:
  int device_;
  std::atomic<CUevent> handle_{};
};

}  // namespace pyxfer
