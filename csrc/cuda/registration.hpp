#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pyxfer {

/// Page-locks memory of another owner until it is closed. The memory must live that long. Its first
/// and its last page are locked as a whole.
class registration {
 public:
  /// Memory that is not `writeable` may be mapped read-only. It is then locked for copies to a
  /// device, if the platform supports that.
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

  /// Unlocks it. If several threads call this, one of them does.
  void close();
  /// Leaves it to the end of the process, because a copy may still be under way.
  void abandon() noexcept { data_ = nullptr; }

 private:
  std::size_t size_;
  int device_;
  std::atomic<void*> data_;
};

}  // namespace pyxfer
