#include "device.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <limits>
#include <mutex>

#include "control.hpp"
#include "entry.hpp"
#include "injection.hpp"
#include "memory.hpp"
#include "stream_registry.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {
namespace {

struct loss {
  std::atomic<int> code{cudaSuccess};
  std::atomic<std::uint64_t> epoch{0};
};

std::array<loss, max_devices> losses;
std::mutex changes_losses;
// A bit for each device.
std::atomic<std::uint32_t> destroyed_contexts{0};
std::atomic<std::uint32_t> hanging{0};
static_assert(max_devices <= std::numeric_limits<std::uint32_t>::digits);

std::uint32_t bit_of(int device) noexcept {
  return std::uint32_t{1} << static_cast<unsigned>(device);
}

}  // namespace

cudaError_t loss_code(int device) noexcept {
  return static_cast<cudaError_t>(losses[static_cast<std::size_t>(device)].code.load());
}

loss_epoch epoch_of(int device) noexcept {
  return {device, losses[static_cast<std::size_t>(device)].epoch.load()};
}

void lose(int device, cudaError_t code) {
  auto& lost = losses.at(static_cast<std::size_t>(device));
  {
    // A restore that sees the code comes after the new epoch, which would end work queued later.
    std::scoped_lock const lock{changes_losses};
    lost.code = code;
    ++lost.epoch;
  }
  wake_pauses();
  streams().wake_all();
}

void restore_devices() noexcept {
  std::scoped_lock const lock{changes_losses};
  for (auto& each : losses) {
    if (each.code == cudaSuccess) continue;
    ++each.epoch;
    each.code = cudaSuccess;
  }
  destroyed_contexts = 0;
}

void lose_device(int code) {
  for (int device = 0; device < max_devices; ++device) lose(device, error_code(code));
}

void lose_one_device(int device, int code) { lose(possible_device(device), error_code(code)); }

void hang_device(int device) { hanging |= bit_of(possible_device(device)); }

void destroy_context(int device) {
  if (!is_device(device)) {
    throw std::invalid_argument{"there is no device " + std::to_string(device)};
  }
  destroyed_contexts |= bit_of(device);
}

bool hangs(int device) noexcept { return (hanging & bit_of(device)) != 0; }

void end_hangs() {
  hanging = 0;
  wake_pauses();
}

bool context_destroyed(int device) noexcept { return (destroyed_contexts & bit_of(device)) != 0; }

std::shared_mutex& memory_in_use(int device) {
  static auto& mutexes = *new std::array<std::shared_mutex, max_devices>;
  return mutexes.at(static_cast<std::size_t>(device));
}

void await_last_touch(int device) { std::unique_lock const lock{memory_in_use(device)}; }

bool is_device(int ordinal) noexcept { return ordinal >= 0 && ordinal < device_count(); }

std::optional<int> attribute(cudaDeviceAttr attr, int device) noexcept {
  if (auto const ordered = ordered_attribute(attr, device)) return ordered;
  switch (attr) {
    case cudaDevAttrAsyncEngineCount: return 2;
    case cudaDevAttrMultiProcessorCount: return 4;
    case cudaDevAttrHostNumaId: return -1;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrHostRegisterReadOnlySupported: return 1;
    case cudaDevAttrComputeCapabilityMajor:
    case cudaDevAttrComputeCapabilityMinor:
    case cudaDevAttrIntegrated:
    case cudaDevAttrNumaConfig:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables: return 0;
    default: return std::nullopt;
  }
}

int driver_version() noexcept {
  return no_driver() == cudaErrorInsufficientDriver ? 0 : CUDART_VERSION;
}

}  // namespace pyxfer::hostrt

using namespace pyxfer::hostrt;

cudaError_t cudaGetDeviceCount(int* count) {
  if (count != nullptr) *count = 0;
  return runtime_call<index_of("cudaGetDeviceCount")>([&] {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = device_count();
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return runtime_call<index_of("cudaGetDevice")>([&] {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = this_thread().device;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return runtime_call<index_of("cudaSetDevice")>([&] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    if (device_lost(device)) return loss_code(device);
    this_thread().device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return runtime_call<index_of("cudaDeviceSynchronize")>(
      [] { return synchronize_device(this_thread().device); });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return runtime_call<index_of("cudaDeviceGetAttribute")>([&] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    auto const found = attribute(attr, device);
    if (value == nullptr || !found) return cudaErrorInvalidValue;
    *value = *found;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* /*pciBusId*/, int /*len*/, int /*device*/) {
  // An invented address could be that of a real device.
  return runtime_call<index_of("cudaDeviceGetPCIBusId")>([] { return cudaErrorInvalidDevice; });
}

cudaError_t cudaDriverGetVersion(int* driverVersion) {
  return runtime_call<index_of("cudaDriverGetVersion")>([&] {
    if (driverVersion == nullptr) return cudaErrorInvalidValue;
    *driverVersion = driver_version();
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  return runtime_call<index_of("cudaRuntimeGetVersion")>([&] {
    if (runtimeVersion == nullptr) return cudaErrorInvalidValue;
    *runtimeVersion = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return runtime_call<index_of("cudaMemGetInfo")>([&] {
    if (free == nullptr || total == nullptr) return cudaErrorInvalidValue;
    auto const amounts = memory_of_machine();
    *free = amounts.free_bytes;
    *total = amounts.total_bytes;
    return cudaSuccess;
  });
}
