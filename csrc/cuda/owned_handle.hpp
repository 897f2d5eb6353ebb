#pragma once

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/process.hpp"

#include <atomic>

namespace pyxfer {

/// What owners of one pointer have in common, such as those of a stream or of memory. It is
/// released once, with its device current, and only in the process that made it.
template <typename Handle>
class owned_handle {
 public:
  owned_handle(owned_handle&& other) noexcept
      : device_{other.device_}, release_{other.release_}, handle_{other.take()} {}
  owned_handle& operator=(owned_handle&& other) = delete;
  owned_handle(owned_handle const&) = delete;
  owned_handle& operator=(owned_handle const&) = delete;

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] Handle handle() const noexcept { return handle_; }

  /// Releases it, and throws an error of the call. If several threads call this, one of them does.
  void close() { release(take()); }
  /// Leaves it to the end of the process without a call, because the device does not respond or a
  /// copy may still be under way.
  void abandon() noexcept { handle_ = nullptr; }

 protected:
  using release_call = void (*)(Handle);

  owned_handle(int device, release_call by) noexcept : device_{device}, release_{by} {}
  ~owned_handle() {
    release_noexcept([this] { close(); });
  }

  void own(Handle made) noexcept { handle_ = made; }
  /// Its value, which it no longer owns.
  [[nodiscard]] Handle take() noexcept { return handle_.exchange(nullptr); }
  void release(Handle taken) const {
    if (taken == nullptr || !same_process()) { return; }
    release_on(device_, [&] { release_(taken); });
  }

 private:
  int device_;
  release_call release_;
  std::atomic<Handle> handle_{};
};

}  // namespace pyxfer
