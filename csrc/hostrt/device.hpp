#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>

namespace pyxfer::hostrt {

/// The device's name, which users read.
inline constexpr char const* device_name = "host memory, not a PCIe link";

[[nodiscard]] bool is_device(int ordinal) noexcept;

/// Nothing for an attribute that has no meaning without a GPU.
[[nodiscard]] std::optional<int> attribute(cudaDeviceAttr attr, int device) noexcept;

/// 0 without a driver, as from the real runtime.
[[nodiscard]] int driver_version() noexcept;

/// The code with which the device was lost, or cudaSuccess.
[[nodiscard]] cudaError_t loss_code() noexcept;

[[nodiscard]] inline bool device_lost() noexcept { return loss_code() != cudaSuccess; }

/// Changes with every loss and every restoration.
[[nodiscard]] std::uint64_t loss_epoch() noexcept;

/// Whether work that was queued in that epoch will be done. Work from before or during a loss is
/// never done, not even after `restore_device`, because its memory may have been freed.
[[nodiscard]] inline bool is_current(std::uint64_t epoch) noexcept {
  return epoch == loss_epoch() && !device_lost();
}

/// Loses the device: queued work is dropped, and calls that wait for it return.
void lose(cudaError_t code);

void restore_device() noexcept;

/// Whether the device's context was destroyed, as by cudaDeviceReset or cuDevicePrimaryCtxReset. An
/// H100 with driver 580 then returned 709 for events and 400 for streams.
[[nodiscard]] bool context_destroyed(int device) noexcept;

void set_context_destroyed(int device) noexcept;

void restore_contexts() noexcept;

/// Locked shared while work accesses memory that a caller may release.
[[nodiscard]] std::shared_mutex& memory_in_use();

/// Runs `work` unless the device has been lost since that epoch.
template <typename Work>
void touch_memory(std::uint64_t epoch, Work const& work) {
  std::shared_lock const lock{memory_in_use()};
  if (is_current(epoch)) work();
}

/// After a loss: returns when no dropped work still accesses memory.
void await_last_touch();

}  // namespace pyxfer::hostrt
