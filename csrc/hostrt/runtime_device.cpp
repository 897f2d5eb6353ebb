#include <cuda_runtime_api.h>

#include "device.hpp"
#include "entry.hpp"
#include "host_memory.hpp"
#include "injection.hpp"
#include "stream_calls.hpp"

using namespace pyxfer::hostrt;

cudaError_t cudaGetDeviceCount(int* count) {
  if (count != nullptr) *count = 0;
  return runtime_call<index_of("cudaGetDeviceCount")>([&] {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = injected().device_count();
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
    auto const found = attribute(attr);
    if (value == nullptr || !found) return cudaErrorInvalidValue;
    *value = *found;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* /*pciBusId*/, int /*len*/, int /*device*/) {
  // There is no PCI device, and a made-up address could be that of a real one.
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
