#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pyxfer {

/// Owns device memory.
class device_buffer {
 public:
  device_buffer(std::size_t bytes, int device);
  ~device_buffer();
  device_buffer(device_buffer&& other) noexcept;
  device_buffer& operator=(device_buffer&& other) = delete;
  device_buffer(device_buffer const&) = delete;
  device_buffer& operator=(device_buffer const&) = delete;

  [[nodiscard]] std::uintptr_t address() const noexcept {
    return reinterpret_cast<std::uintptr_t>(data_.load());
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Releases it. If several threads call this, one of them does.
  void close();
  /// Leaves it to the end of the process, because the device does not respond.
  void abandon() noexcept { data_ = nullptr; }

 private:
  std::size_t size_;
  int device_;
  std::atomic<void*> data_{};
};

}  // namespace pyxfer
