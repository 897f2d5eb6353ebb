#pragma once

#include <cuda.h>

#include <atomic>

namespace pyxfer {

/// A handle of any library's stream, not owned; nullptr is the legacy default stream.
class stream_view {
 public:
  explicit stream_view(CUstream handle) noexcept : handle_{handle} {}
  [[nodiscard]] CUstream handle() const noexcept { return handle_; }

 private:
  CUstream handle_;
};

/// Owns a non-blocking stream: it is not synchronized with the legacy default stream.
class stream {
 public:
  explicit stream(int device);
  ~stream();
  stream(stream&& other) noexcept;
  stream& operator=(stream&& other) = delete;
  stream(stream const&) = delete;
  stream& operator=(stream const&) = delete;

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] CUstream handle() const noexcept { return handle_; }
  [[nodiscard]] stream_view view() const noexcept { return stream_view{handle_}; }

  /// Destroys it, and throws an error of the call. If several threads call this, one of them does.
  void close();
  /// Drops the handle without a call, because the device does not respond.
  void abandon() noexcept { handle_ = nullptr; }

 private:
  int device_;
  std::atomic<CUstream> handle_{};
};

}  // namespace pyxfer
