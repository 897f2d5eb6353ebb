#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pyxfer {

/// Somebody's memory, page-locked where it lies until this is closed. The memory has to stay as
/// long; the pages that it begins and ends in are locked whole.
class registration {
 public:
  /// Memory that is not `writeable` may be mapped read-only: then copies to a device can read it,
  /// where the platform can lock such memory.
  registration(std::uintptr_t address, std::size_t bytes, int device, bool writeable = true);
  ~registration();
  registration(registration&& other) noexcept;
  registration& operator=(registration&& other) = delete;
  registration(registration const&) = delete;
  registration& operator=(registration const&) = delete;

  [[nodiscard]] std::uintptr_t address() const noexcept {
    return reinterpret_cast<std::uintptr_t>(data_.load());
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Unlock it; of several threads that call this, one does.
  void close();
  /// Leave it to the end of the process: a copy may still be under way.
  void abandon() noexcept { data_ = nullptr; }

 private:
  std::size_t size_;
  int device_;
  std::atomic<void*> data_;
};

}  // namespace pyxfer
