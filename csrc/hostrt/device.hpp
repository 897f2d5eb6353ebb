#pragma once

#include <cuda_runtime_api.h>

#include <optional>

namespace pyxfer::hostrt {

/// What a user reads as the device's name.
inline constexpr char const* device_name = "host memory, not a PCIe link";

[[nodiscard]] bool is_device(int ordinal) noexcept;

/// Nothing for an attribute that has no meaning without a GPU.
[[nodiscard]] std::optional<int> attribute(cudaDeviceAttr attr) noexcept;

/// 0 without a driver, as the real runtime says it.
[[nodiscard]] int driver_version() noexcept;

}  // namespace pyxfer::hostrt
