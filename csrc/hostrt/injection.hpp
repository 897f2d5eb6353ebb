#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "waiting.hpp"

namespace pyxfer::hostrt {

/// How a call behaves without a driver, and after the loss of the device.
enum class call_kind {
  always,   ///< succeeds without a driver and after a loss: versions, error texts, the last error
  query,    ///< needs a driver, and makes no context
  work,     ///< needs a driver, and makes the device's primary context current
  release,  ///< releases even if it returns an error
};

struct call_info {
  std::string_view name;
  call_kind kind;
  /// Captures forbid it, because it allocates, frees, queries or synchronizes. An H100 with driver
  /// 580 refused cudaMalloc, cudaHostAlloc and cuEventQuery; the others are those of the
  /// documentation of cudaThreadExchangeStreamCaptureMode.
  bool unsafe_in_capture = false;
};

/// Every call of this library, by the name that tests use for it.
inline constexpr std::array all_calls{
    call_info{"cudaGetDeviceCount", call_kind::query},
    call_info{"cudaGetDevice", call_kind::query},
    call_info{"cudaSetDevice", call_kind::work},
    call_info{"cudaDeviceSynchronize", call_kind::work, true},
    call_info{"cudaDeviceGetAttribute", call_kind::query},
    call_info{"cudaDeviceGetPCIBusId", call_kind::query},
    call_info{"cudaDriverGetVersion", call_kind::always},
    call_info{"cudaRuntimeGetVersion", call_kind::always},
    call_info{"cudaMemGetInfo", call_kind::work},
    call_info{"cudaGetLastError", call_kind::always},
    call_info{"cudaPeekAtLastError", call_kind::always},
    call_info{"cudaGetErrorName", call_kind::always},
    call_info{"cudaGetErrorString", call_kind::always},
    call_info{"cudaMalloc", call_kind::work, true},
    call_info{"cudaFree", call_kind::release, true},
    call_info{"cudaHostAlloc", call_kind::work, true},
    call_info{"cudaFreeHost", call_kind::release, true},
    call_info{"cudaHostRegister", call_kind::work, true},
    call_info{"cudaHostUnregister", call_kind::release, true},
    call_info{"cudaPointerGetAttributes", call_kind::work},
    call_info{"cudaMemset", call_kind::work, true},
    call_info{"cudaMemsetAsync", call_kind::work},
    call_info{"cudaMemcpy", call_kind::work, true},
    call_info{"cudaMemcpyAsync", call_kind::work},
    call_info{"cudaMemcpyBatchAsync", call_kind::work},
    call_info{"cudaStreamCreateWithFlags", call_kind::work},
    call_info{"cudaStreamDestroy", call_kind::release},
    call_info{"cudaStreamSynchronize", call_kind::work, true},
    call_info{"cudaStreamQuery", call_kind::work, true},
    call_info{"cudaStreamWaitEvent", call_kind::work},
    call_info{"cudaStreamBeginCapture", call_kind::work},
    call_info{"cudaStreamEndCapture", call_kind::work},
    call_info{"cudaStreamIsCapturing", call_kind::work},
    call_info{"cudaLaunchHostFunc", call_kind::work},
    call_info{"cudaGetDriverEntryPointByVersion", call_kind::query},
    call_info{"cuInit", call_kind::query},
    call_info{"cuDriverGetVersion", call_kind::always},
    call_info{"cuCtxGetCurrent", call_kind::query},
    call_info{"cuCtxSetCurrent", call_kind::query},
    call_info{"cuDeviceGet", call_kind::query},
    call_info{"cuDeviceGetName", call_kind::query},
    call_info{"cuDeviceGetUuid", call_kind::query},
    call_info{"cuDeviceTotalMem", call_kind::query},
    call_info{"cuEventCreate", call_kind::query},
    call_info{"cuEventDestroy", call_kind::release},
    call_info{"cuEventRecord", call_kind::query},
    call_info{"cuEventQuery", call_kind::query, true},
    call_info{"cuEventSynchronize", call_kind::query, true},
    call_info{"cuEventElapsedTime", call_kind::query, true},
    call_info{"cuStreamWaitEvent", call_kind::query},
    call_info{"cuCtxSynchronize", call_kind::query, true},
    call_info{"cuStreamSynchronize", call_kind::query, true},
    call_info{"cuStreamQuery", call_kind::query, true},
    call_info{"cuStreamIsCapturing", call_kind::query},
    call_info{"cuThreadExchangeStreamCaptureMode", call_kind::query},
    call_info{"cuPointerGetAttribute", call_kind::query},
    call_info{"cuPointerGetAttributes", call_kind::query},
    call_info{"cuGetErrorName", call_kind::always},
    call_info{"cuGetErrorString", call_kind::always},
    call_info{"cudaDeviceCanAccessPeer", call_kind::query},
    call_info{"cudaDeviceEnablePeerAccess", call_kind::work},
    call_info{"cudaDeviceDisablePeerAccess", call_kind::work},
    call_info{"cuMemcpyDtoHAsync", call_kind::query},
    call_info{"cuMemcpyAsync", call_kind::query},
    call_info{"cuMemcpy2DAsync", call_kind::query},
    call_info{"cuMemcpyBatchAsync", call_kind::query},
    call_info{"cuMemcpyHtoDAsync", call_kind::query},
    call_info{"cuModuleLoadData", call_kind::query},
    call_info{"cuModuleGetFunction", call_kind::query},
    call_info{"cuModuleUnload", call_kind::release},
    call_info{"cuLaunchKernel", call_kind::query},
};

/// The index of `name` in `all_calls`. An unknown name does not compile in a constant expression,
/// and throws std::invalid_argument elsewhere.
constexpr std::size_t index_of(std::string_view name) {
  for (std::size_t i = 0; i < all_calls.size(); ++i) {
    if (all_calls[i].name == name) return i;
  }
  throw std::invalid_argument{"not a call of the host runtime"};
}

inline constexpr int max_devices = 16;

/// What tests have ordered for one call.
struct orders {
  cudaError_t code = cudaSuccess;
  ordered_delay delay{0};
};

/// Counts a call, and returns what was ordered for it.
[[nodiscard]] orders orders_for(std::size_t call);

/// Whether the entry point of the driver, or the runtime call of the same name, was made missing.
[[nodiscard]] bool is_missing(std::string const& symbol);

[[nodiscard]] int device_count() noexcept;
/// What every call that needs a driver returns; cudaSuccess if there is one.
[[nodiscard]] cudaError_t no_driver() noexcept;
/// The value that was ordered for a device attribute, if any.
[[nodiscard]] std::optional<int> ordered_attribute(int attribute, int device);

/// Keeps the calling thread busy for the time that was ordered for the copies of a batch.
void spend_time_of_copies(std::size_t count);

void reset_injection();

// These throw std::invalid_argument for an argument that no order can have.

[[nodiscard]] std::size_t known_call(std::string const& name);
[[nodiscard]] int possible_device(int device);
[[nodiscard]] cudaError_t error_code(int code);

}  // namespace pyxfer::hostrt
