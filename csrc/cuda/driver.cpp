#include "cuda/driver.hpp"

#include "cuda/error.hpp"

#include <stdexcept>
#include <string>

namespace pyxfer {
namespace {

/// The oldest driver API that pyxfer supports. The functions of the table have not changed since.
constexpr unsigned oldest_api = 12000;

template <typename Function>
void find(char const* symbol, Function& function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
  PYXFER_TRY(
      cudaGetDriverEntryPointByVersion(symbol, &address, oldest_api, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || address == nullptr) {
    throw unavailable_error(cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
                            "cudaGetDriverEntryPointByVersion", "csrc/cuda/driver.cpp",
                            std::string{"the driver has no "} + symbol);
  }
  function = reinterpret_cast<Function>(address);
}

driver_table load() {
  driver_table table{};
  find("cuCtxGetCurrent", table.cuCtxGetCurrent);
  find("cuCtxSetCurrent", table.cuCtxSetCurrent);
  find("cuCtxSynchronize", table.cuCtxSynchronize);
  find("cuDeviceGet", table.cuDeviceGet);
  find("cuDeviceGetName", table.cuDeviceGetName);
  find("cuDeviceGetUuid", table.cuDeviceGetUuid);
  find("cuDeviceTotalMem", table.cuDeviceTotalMem);
  find("cuEventCreate", table.cuEventCreate);
  find("cuEventDestroy", table.cuEventDestroy);
  find("cuEventElapsedTime", table.cuEventElapsedTime);
  find("cuEventQuery", table.cuEventQuery);
  find("cuEventRecord", table.cuEventRecord);
  find("cuLaunchKernel", table.cuLaunchKernel);
  find("cuMemcpy2DAsync", table.cuMemcpy2DAsync);
  find("cuMemcpyAsync", table.cuMemcpyAsync);
  find("cuMemcpyDtoHAsync", table.cuMemcpyDtoHAsync);
  find("cuMemcpyHtoDAsync", table.cuMemcpyHtoDAsync);
  find("cuModuleGetFunction", table.cuModuleGetFunction);
  find("cuModuleLoadData", table.cuModuleLoadData);
  find("cuModuleUnload", table.cuModuleUnload);
  find("cuPointerGetAttributes", table.cuPointerGetAttributes);
  find("cuStreamIsCapturing", table.cuStreamIsCapturing);
  find("cuStreamQuery", table.cuStreamQuery);
  find("cuStreamWaitEvent", table.cuStreamWaitEvent);
  find("cuThreadExchangeStreamCaptureMode", table.cuThreadExchangeStreamCaptureMode);
  find("cuGetErrorName", table.cuGetErrorName);
  find("cuGetErrorString", table.cuGetErrorString);
  return table;
}

}  // namespace

driver_table const& driver() {
  static driver_table const table = load();  // after an exception, the next call tries again
  return table;
}

void* driver_function(std::string const& symbol, unsigned int api_version) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
  auto const status = cudaGetDriverEntryPointByVersion(symbol.c_str(), &address, api_version,
                                                       cudaEnableDefault, &found);
  if (status != cudaSuccess) { static_cast<void>(cudaGetLastError()); }
  return status == cudaSuccess && found == cudaDriverEntryPointSuccess ? address : nullptr;
}

bool driver_has(std::string const& symbol, unsigned int api_version) {
  return driver_function(symbol, api_version) != nullptr;
}

void driver_error_text(CUresult status, char const** name, char const** text) noexcept {
  *name = "CUDA_ERROR";
  *text = "the driver gave no text for this code";
  try {
    auto const& table = driver();
    if (table.cuGetErrorName(status, name) != CUDA_SUCCESS) { *name = "CUDA_ERROR"; }
    if (table.cuGetErrorString(status, text) != CUDA_SUCCESS) { *text = "unknown driver error"; }
  } catch (std::exception const&) {  // NOLINT(bugprone-empty-catch): the fallback texts stand
  }
}

}  // namespace pyxfer
