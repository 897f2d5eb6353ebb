#include "entry.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "capture.hpp"
#include "device.hpp"
#include "event.hpp"
#include "memory.hpp"
#include "module.hpp"
#include "stream_registry.hpp"
#include "transfer.hpp"

namespace pyxfer::hostrt {
namespace driver {
namespace {

/// The handles of the devices' primary contexts begin here. They are never dereferenced.
constexpr std::uintptr_t first_context = 0x100;

CUresult init(unsigned int flags) {
  return driver_call<index_of("cuInit")>(
      [&] { return flags == 0 ? cudaSuccess : cudaErrorInvalidValue; });
}

CUresult get_version(int* version) {
  return driver_call<index_of("cuDriverGetVersion")>([&] {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = driver_version();
    return cudaSuccess;
  });
}

CUresult get_current_context(CUcontext* context) {
  return driver_call<index_of("cuCtxGetCurrent")>([&] {
    if (context == nullptr) return cudaErrorInvalidValue;
    auto const& state = this_thread();
    auto const value = first_context + static_cast<std::uintptr_t>(state.device);
    *context = state.has_context ? reinterpret_cast<CUcontext>(value) : nullptr;
    return cudaSuccess;
  });
}

CUresult set_current_context(CUcontext context) {
  return driver_call<index_of("cuCtxSetCurrent")>([&] {
    auto& state = this_thread();
    if (context != nullptr) {
      auto const device =
          static_cast<int>(reinterpret_cast<std::uintptr_t>(context) - first_context);
      if (!is_device(device)) return cudaErrorDeviceUninitialized;
      if (context_destroyed(device)) return cudaErrorContextIsDestroyed;
      state.device = device;
    }
    state.has_context = context != nullptr;
    return context != nullptr ? loss_code(state.device) : cudaSuccess;
  });
}

CUresult synchronize_context() {
  return driver_call<index_of("cuCtxSynchronize")>([] {
    if (!this_thread().has_context) return cudaErrorDeviceUninitialized;
    if (context_destroyed(this_thread().device)) return cudaErrorContextIsDestroyed;
    return synchronize_device(this_thread().device);
  });
}

CUresult get_device(CUdevice* device, int ordinal) {
  return driver_call<index_of("cuDeviceGet")>([&] {
    if (device == nullptr) return cudaErrorInvalidValue;
    if (!is_device(ordinal)) return cudaErrorInvalidDevice;
    *device = ordinal;
    return cudaSuccess;
  });
}

CUresult get_device_name(char* name, int length, CUdevice device) {
  return driver_call<index_of("cuDeviceGetName")>([&] {
    if (name == nullptr || length < 1) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    auto const room = static_cast<std::size_t>(length) - 1;
    auto const copied = std::min(room, std::strlen(device_name));
    std::memcpy(name, device_name, copied);
    name[copied] = '\0';
    return cudaSuccess;
  });
}

CUresult get_device_uuid(CUuuid* uuid, CUdevice device) {
  return driver_call<index_of("cuDeviceGetUuid")>([&] {
    if (uuid == nullptr) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    constexpr std::string_view recognisable = "pyxfer host mem";
    static_assert(recognisable.size() + 1 == sizeof(uuid->bytes));
    std::memcpy(uuid->bytes, recognisable.data(), recognisable.size());
    uuid->bytes[recognisable.size()] = static_cast<char>(device);
    return cudaSuccess;
  });
}

CUresult get_total_memory(std::size_t* bytes, CUdevice device) {
  return driver_call<index_of("cuDeviceTotalMem")>([&] {
    if (bytes == nullptr) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    *bytes = memory_of_machine().total_bytes;
    return cudaSuccess;
  });
}

CUresult stream_wait_event(CUstream stream, CUevent event, unsigned int flags) {
  return driver_call<index_of("cuStreamWaitEvent")>(
      [&](ordered_delay const& delay) { return make_stream_wait(stream, event, flags, delay); });
}

CUresult stream_synchronize(CUstream stream) {
  return driver_call<index_of("cuStreamSynchronize")>([&] { return synchronize_stream(stream); });
}

CUresult stream_query(CUstream stream) {
  return driver_call<index_of("cuStreamQuery")>([&] { return query_stream(stream); });
}

CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
  return driver_call<index_of("cuStreamIsCapturing")>([&] {
    if (status == nullptr) return cudaErrorInvalidValue;
    std::shared_ptr<hostrt::stream> on;
    if (auto const code = find_stream(stream, on); code != cudaSuccess) return code;
    auto found = cudaStreamCaptureStatusNone;
    auto const code = captures().status(*on, found);
    *status = static_cast<CUstreamCaptureStatus>(found);
    return code;
  });
}

CUresult exchange_capture_mode(CUstreamCaptureMode* mode) {
  return driver_call<index_of("cuThreadExchangeStreamCaptureMode")>([&] {
    if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
        *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
      return cudaErrorInvalidValue;
    }
    auto const before =
        std::exchange(this_thread().capture_mode, static_cast<cudaStreamCaptureMode>(*mode));
    *mode = static_cast<CUstreamCaptureMode>(before);
    return cudaSuccess;
  });
}

CUresult upload_async(CUdeviceptr to, void const* from, std::size_t bytes, CUstream stream) {
  return driver_call<index_of("cuMemcpyHtoDAsync")>([&](ordered_delay const& delay) {
    return queue_copy(reinterpret_cast<void*>(to), from, bytes, cudaMemcpyHostToDevice, stream,
                      delay);
  });
}

CUresult download_async(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return driver_call<index_of("cuMemcpyDtoHAsync")>([&](ordered_delay const& delay) {
    return queue_copy(to, reinterpret_cast<void const*>(from), bytes, cudaMemcpyDeviceToHost,
                      stream, delay);
  });
}

CUresult copy_async(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return driver_call<index_of("cuMemcpyAsync")>([&](ordered_delay const& delay) {
    return queue_copy(reinterpret_cast<void*>(to), reinterpret_cast<void const*>(from), bytes,
                      cudaMemcpyDefault, stream, delay);
  });
}

/// Only for addresses that the driver finds itself (CU_MEMORYTYPE_UNIFIED), from the first row on.
CUresult copy_2d_async(CUDA_MEMCPY2D const* order, CUstream stream) {
  return driver_call<index_of("cuMemcpy2DAsync")>([&](ordered_delay const& delay) {
    if (order == nullptr) return cudaErrorInvalidValue;
    if (order->srcMemoryType != CU_MEMORYTYPE_UNIFIED ||
        order->dstMemoryType != CU_MEMORYTYPE_UNIFIED || order->srcXInBytes != 0 ||
        order->srcY != 0 || order->dstXInBytes != 0 || order->dstY != 0) {
      return cudaErrorNotSupported;
    }
    return queue_rows(
        {reinterpret_cast<void*>(order->dstDevice), reinterpret_cast<void const*>(order->srcDevice),
         order->dstPitch, order->srcPitch, order->WidthInBytes, order->Height},
        stream, delay);
  });
}

/// Writes an attribute of a region; zero if the memory was neither allocated nor registered here.
cudaError_t write_attribute(void* value, CUpointer_attribute attribute,
                            std::optional<region> const& known) {
  if (value == nullptr) return cudaErrorInvalidValue;
  auto const on_device = known && known->kind == memory_kind::device;
  auto const type = on_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned int*>(value) = known ? unsigned{type} : 0U;
      return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(value) = known ? known->address : 0;
      return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(value) = known ? known->bytes : 0;
      return cudaSuccess;
    default: return cudaErrorNotSupported;
  }
}

CUresult pointer_attribute(void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return driver_call<index_of("cuPointerGetAttribute")>([&] {
    auto const known = memory().find(reinterpret_cast<void const*>(pointer));
    return known ? write_attribute(value, attribute, known) : cudaErrorInvalidValue;
  });
}

/// Unlike the call for one attribute, it also succeeds for unknown memory.
CUresult pointer_attributes(unsigned int count, CUpointer_attribute* attributes, void** values,
                            CUdeviceptr pointer) {
  return driver_call<index_of("cuPointerGetAttributes")>([&] {
    if (attributes == nullptr || values == nullptr) return cudaErrorInvalidValue;
    auto const known = memory().find(reinterpret_cast<void const*>(pointer));
    for (unsigned int i = 0; i < count; ++i) {
      auto const code = write_attribute(values[i], attributes[i], known);
      if (code != cudaSuccess) return code;
    }
    return cudaSuccess;
  });
}

CUresult return_text(char const** out, char const* text) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = text;
  return text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult get_error_name(CUresult code, char const** name) {
  (void)admit(index_of("cuGetErrorName"));
  return return_text(name, find_error(static_cast<int>(code)).driver_name);
}

CUresult get_error_string(CUresult code, char const** text) {
  (void)admit(index_of("cuGetErrorString"));
  auto const known = find_error(static_cast<int>(code));
  return return_text(text, known.driver_name == nullptr ? nullptr : known.text);
}

auto const& symbols() {
  static std::array const table{
      exported{"cuInit", init},
      exported{"cuDriverGetVersion", get_version},
      exported{"cuCtxGetCurrent", get_current_context},
      exported{"cuCtxSetCurrent", set_current_context},
      exported{"cuCtxSynchronize", synchronize_context},
      exported{"cuDeviceGet", get_device},
      exported{"cuDeviceGetName", get_device_name},
      exported{"cuDeviceGetUuid", get_device_uuid},
      exported{"cuDeviceTotalMem", get_total_memory},
      exported{"cuEventCreate", event_create},
      exported{"cuEventDestroy", event_destroy},
      exported{"cuEventRecord", event_record},
      exported{"cuEventQuery", event_query},
      exported{"cuEventSynchronize", event_synchronize},
      exported{"cuEventElapsedTime", event_elapsed_time},
      exported{"cuStreamWaitEvent", stream_wait_event},
      exported{"cuStreamSynchronize", stream_synchronize},
      exported{"cuStreamQuery", stream_query},
      exported{"cuStreamIsCapturing", stream_is_capturing},
      exported{"cuThreadExchangeStreamCaptureMode", exchange_capture_mode},
      exported{"cuPointerGetAttribute", pointer_attribute},
      exported{"cuPointerGetAttributes", pointer_attributes},
      exported{"cuMemcpyDtoHAsync", download_async},
      exported{"cuMemcpyHtoDAsync", upload_async},
      exported{"cuMemcpyAsync", copy_async},
      exported{"cuMemcpy2DAsync", copy_2d_async},
      exported{"cuMemcpyBatchAsync", memcpy_batch_async},
      exported{"cuModuleLoadData", module_load_data},
      exported{"cuModuleUnload", module_unload},
      exported{"cuModuleGetFunction", module_get_function},
      exported{"cuLaunchKernel", launch_kernel},
      exported{"cuGetErrorName", get_error_name},
      exported{"cuGetErrorString", get_error_string},
  };
  return table;
}

}  // namespace
}  // namespace driver

void* driver_function(std::string_view symbol) noexcept {
  return find_exported(driver::symbols(), symbol);
}

}  // namespace pyxfer::hostrt
