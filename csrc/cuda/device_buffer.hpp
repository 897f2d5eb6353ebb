#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pyxfer {

/// Device memory of pyxfer's own.
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

  /// Release it; of several threads that call this, one does.
  void close();
  /// Leave it to the end of the process: its device no longer answers.
  void abandon() noexcept { data_ = nullptr; }

 private:
  std::size_t size_;
  int device_;
  std::atomic<void*> data_{};
};

}  // namespace pyxfer
