#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

namespace pyxfer {

/// The driver calls that take other libraries' handles. A driver handle may cross major versions of
/// CUDA, and a runtime handle may not (CUDA driver API, "version mixing rules"). PyTorch brings
/// CUDA 13, and TensorFlow CUDA 12. The calls for modules are here because the runtime has none.
struct driver_table {
  CUresult (*cuCtxGetCurrent)(CUcontext*);
  CUresult (*cuCtxSetCurrent)(CUcontext);
  CUresult (*cuCtxSynchronize)();
  CUresult (*cuDeviceGet)(CUdevice*, int);
  CUresult (*cuDeviceGetName)(char*, int, CUdevice);
  CUresult (*cuDeviceGetUuid)(CUuuid*, CUdevice);
  CUresult (*cuDeviceTotalMem)(size_t*, CUdevice);
  CUresult (*cuEventCreate)(CUevent*, unsigned int);
  CUresult (*cuEventDestroy)(CUevent);
  CUresult (*cuEventElapsedTime)(float*, CUevent, CUevent);
  CUresult (*cuEventQuery)(CUevent);
  CUresult (*cuEventRecord)(CUevent, CUstream);
  CUresult (*cuLaunchKernel)(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                             unsigned int, unsigned int, unsigned int, CUstream, void**, void**);
  CUresult (*cuMemcpy2DAsync)(CUDA_MEMCPY2D const*, CUstream);
  CUresult (*cuMemcpyAsync)(CUdeviceptr, CUdeviceptr, size_t, CUstream);
  CUresult (*cuMemcpyDtoHAsync)(void*, CUdeviceptr, size_t, CUstream);
  CUresult (*cuMemcpyHtoDAsync)(CUdeviceptr, void const*, size_t, CUstream);
  CUresult (*cuModuleGetFunction)(CUfunction*, CUmodule, char const*);
  CUresult (*cuModuleLoadData)(CUmodule*, void const*);
  CUresult (*cuModuleUnload)(CUmodule);
  CUresult (*cuPointerGetAttributes)(unsigned int, CUpointer_attribute*, void**, CUdeviceptr);
  CUresult (*cuStreamIsCapturing)(CUstream, CUstreamCaptureStatus*);
  CUresult (*cuStreamQuery)(CUstream);
  CUresult (*cuStreamWaitEvent)(CUstream, CUevent, unsigned int);
  CUresult (*cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode*);
  CUresult (*cuGetErrorName)(CUresult, char const**);
  CUresult (*cuGetErrorString)(CUresult, char const**);
};

/// The table, which is filled through the runtime on first use, so that nothing links against
/// libcuda. Throws if there is no driver; the next call tries again.
[[nodiscard]] driver_table const& driver();

/// The driver's function of that API version; null if it has none, or if there is no driver.
[[nodiscard]] void* driver_function(std::string const& symbol, unsigned int api_version);

/// Whether the driver has a function of that API version; false if there is no driver.
[[nodiscard]] bool driver_has(std::string const& symbol, unsigned int api_version);

/// Name and text of a driver error; never null, even if the table cannot be filled.
void driver_error_text(CUresult status, char const** name, char const** text) noexcept;

}  // namespace pyxfer
