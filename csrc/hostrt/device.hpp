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

/// The code with which a device was lost, or cudaSuccess.
[[nodiscard]] cudaError_t loss_code(int device) noexcept;

[[nodiscard]] inline bool device_lost(int device) noexcept {
  return loss_code(device) != cudaSuccess;
}

/// Changes with every loss and every restoration of the device.
struct loss_epoch {
  int device = 0;
  std::uint64_t count = 0;
};

[[nodiscard]] loss_epoch epoch_of(int device) noexcept;

/// Whether work that was queued in that epoch will be done. Work from before or during a loss is
/// never done, not even after `restore_devices`, because its memory may have been freed.
[[nodiscard]] inline bool is_current(loss_epoch const& epoch) noexcept {
  return epoch.count == epoch_of(epoch.device).count && !device_lost(epoch.device);
}

/// Loses one device: its queued work is dropped, and calls that wait for it return.
void lose(int device, cudaError_t code);

/// Ends losses and restores contexts.
void restore_devices() noexcept;

/// Whether a device hangs: its streams begin no work until `end_hangs`, or until it is lost.
[[nodiscard]] bool hangs(int device) noexcept;
void end_hangs();

/// Whether the device's context was destroyed, as by cudaDeviceReset or cuDevicePrimaryCtxReset. An
/// H100 with driver 580 then returned 709 for events and 400 for streams.
[[nodiscard]] bool context_destroyed(int device) noexcept;

/// Locked shared while work of a device accesses memory that a caller may release.
[[nodiscard]] std::shared_mutex& memory_in_use(int device);

/// Runs `work` unless its device has been lost since that epoch.
template <typename Work>
void touch_memory(loss_epoch const& epoch, Work const& work) {
  std::shared_lock const lock{memory_in_use(epoch.device)};
  if (is_current(epoch)) work();
}

/// After the loss of a device: returns when none of its dropped work still accesses memory.
void await_last_touch(int device);

}  // namespace pyxfer::hostrt
