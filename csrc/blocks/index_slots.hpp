#pragma once

#include "blocks/kernels.hpp"
#include "cuda/memory.hpp"
#include "cuda/stream.hpp"
#include "cuda/wait.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace pyxfer {

/// Page-locked memory and memory of the device through which indices get to kernels, in slots of
/// one size. A slot is used again when the device has passed the kernel that reads it. Any thread
/// may take one. The device's primary context is current.
class index_slots {
 public:
  explicit index_slots(int device) noexcept : device_{device} {}

  /// 1 MiB on each side.
  static constexpr std::size_t most_pairs = std::size_t{1} << 17U;
  static constexpr std::size_t most_slots = 16;

  struct slot {
    slot(int device, std::size_t bytes)
        : host{bytes, memory_kind::pinned, device},
          memory{bytes, device},
          passed{device, event_use::order} {}

    [[nodiscard]] packed_pair* pairs() const noexcept {
      return reinterpret_cast<packed_pair*>(host.address());
    }

    host_buffer host;
    device_buffer memory;
    event passed;
    bool taken{true};  ///< by a thread, or for ever if that could not record the event
  };

  /// A slot that no kernel reads; it waits if all are in use. The caller gives it back when it has
  /// recorded `passed` behind the kernel. A slot that is not given back is not used again.
  [[nodiscard]] slot& take(interruption const& interrupted);
  void give_back(slot& used);

  /// Whether the device has passed all kernels that read a slot.
  [[nodiscard]] bool is_idle();
  void close();
  void abandon() noexcept;

 private:
  [[nodiscard]] slot* find_free();

  int device_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<slot>> slots_;
};

}  // namespace pyxfer
