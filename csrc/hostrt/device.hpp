#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>

namespace pyxfer::hostrt {

/// What a user reads as the device's name.
inline constexpr char const* device_name = "host memory, not a PCIe link";

[[nodiscard]] bool is_device(int ordinal) noexcept;

/// Nothing for an attribute that has no meaning without a GPU.
[[nodiscard]] std::optional<int> attribute(cudaDeviceAttr attr) noexcept;

/// 0 without a driver, as the real runtime says it.
[[nodiscard]] int driver_version() noexcept;

/// The code the device was lost with, cudaSuccess while it works.
[[nodiscard]] cudaError_t loss_code() noexcept;

[[nodiscard]] inline bool device_lost() noexcept { return loss_code() != cudaSuccess; }

/// Changes with every loss and every restoration.
[[nodiscard]] std::uint64_t loss_epoch() noexcept;

/// Whether work queued in that epoch is still to be done. What was queued before or during a loss
/// never is, not even after `restore_device`: its memory may be gone.
[[nodiscard]] inline bool is_current(std::uint64_t epoch) noexcept {
  return epoch == loss_epoch() && !device_lost();
}

/// Loses the device: queued work is dropped and whoever waits for it returns.
void lose(cudaError_t code);

void restore_device() noexcept;

/// What cudaDeviceReset and cuDevicePrimaryCtxReset do to the handles of a device: an H100 with
/// driver 580 then answered 709 for events and 400 for streams.
[[nodiscard]] bool context_destroyed(int device) noexcept;

void set_context_destroyed(int device) noexcept;

void restore_contexts() noexcept;

/// Held shared while work reads or writes memory that a caller may release.
[[nodiscard]] std::shared_mutex& memory_in_use();

/// Runs `work` unless the device was lost since it was queued.
template <typename Work>
void touch_memory(std::uint64_t epoch, Work const& work) {
  std::shared_lock const lock{memory_in_use()};
  if (is_current(epoch)) work();
}

/// After a loss: returns once no dropped work still touches memory.
void await_last_touch();

}  // namespace pyxfer::hostrt
