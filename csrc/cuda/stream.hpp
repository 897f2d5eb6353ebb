#pragma once

#include <cuda.h>

#include <atomic>

namespace pyxfer {

/// Somebody's stream, by value; nullptr is the legacy default stream.
class stream_view {
 public:
  explicit stream_view(CUstream handle) noexcept : handle_{handle} {}
  [[nodiscard]] CUstream handle() const noexcept { return handle_; }

 private:
  CUstream handle_;
};

/// A non-blocking stream of pyxfer's own: it never waits for the legacy default stream, nor makes
/// that wait.
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

  /// Destroy it now, with errors; a second time does nothing. Of several threads that call this,
  /// one does.
  void close();
  /// Let it go without a call: its device no longer answers.
  void abandon() noexcept { handle_ = nullptr; }

 private:
  int device_;
  std::atomic<CUstream> handle_{};
};

}  // namespace pyxfer
