#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <utility>

#include "device.hpp"
#include "entry.hpp"

namespace pyxfer::hostrt {
namespace {

// The names and texts of the 12.9 runtime and driver, for the codes that this engine can receive.
constexpr std::array known_errors{
    error_text{0, "cudaSuccess", "CUDA_SUCCESS", "no error"},
    error_text{1, "cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    error_text{2, "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    error_text{3, "cudaErrorInitializationError", "CUDA_ERROR_NOT_INITIALIZED",
               "initialization error"},
    error_text{4, "cudaErrorCudartUnloading", "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    error_text{5, "cudaErrorProfilerDisabled", "CUDA_ERROR_PROFILER_DISABLED",
               "profiler disabled while using external profiling tool"},
    error_text{16, "cudaErrorInvalidHostPointer", nullptr, "invalid host pointer"},
    error_text{17, "cudaErrorInvalidDevicePointer", nullptr, "invalid device pointer"},
    error_text{21, "cudaErrorInvalidMemcpyDirection", nullptr, "invalid copy direction for memcpy"},
    error_text{34, "cudaErrorStubLibrary", "CUDA_ERROR_STUB_LIBRARY",
               "CUDA driver is a stub library"},
    error_text{35, "cudaErrorInsufficientDriver", nullptr,
               "CUDA driver version is insufficient for CUDA runtime version"},
    error_text{36, "cudaErrorCallRequiresNewerDriver", nullptr,
               "API call is not supported in the installed CUDA driver"},
    error_text{46, "cudaErrorDevicesUnavailable", "CUDA_ERROR_DEVICE_UNAVAILABLE",
               "CUDA-capable device(s) is/are busy or unavailable"},
    error_text{49, "cudaErrorIncompatibleDriverContext", nullptr, "incompatible driver context"},
    error_text{98, "cudaErrorInvalidDeviceFunction", nullptr, "invalid device function"},
    error_text{100, "cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE",
               "no CUDA-capable device is detected"},
    error_text{101, "cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE",
               "invalid device ordinal"},
    error_text{102, "cudaErrorDeviceNotLicensed", "CUDA_ERROR_DEVICE_NOT_LICENSED",
               "device doesn't have valid Grid license"},
    error_text{103, "cudaErrorSoftwareValidityNotEstablished", nullptr, "integrity checks failed"},
    error_text{127, "cudaErrorStartupFailure", nullptr, "startup failure in cuda runtime"},
    error_text{200, "cudaErrorInvalidKernelImage", "CUDA_ERROR_INVALID_IMAGE",
               "device kernel image is invalid"},
    error_text{201, "cudaErrorDeviceUninitialized", "CUDA_ERROR_INVALID_CONTEXT",
               "invalid device context"},
    error_text{205, "cudaErrorMapBufferObjectFailed", "CUDA_ERROR_MAP_FAILED",
               "mapping of buffer object failed"},
    error_text{206, "cudaErrorUnmapBufferObjectFailed", "CUDA_ERROR_UNMAP_FAILED",
               "unmapping of buffer object failed"},
    error_text{208, "cudaErrorAlreadyMapped", "CUDA_ERROR_ALREADY_MAPPED",
               "resource already mapped"},
    error_text{209, "cudaErrorNoKernelImageForDevice", "CUDA_ERROR_NO_BINARY_FOR_GPU",
               "no kernel image is available for execution on the device"},
    error_text{214, "cudaErrorECCUncorrectable", "CUDA_ERROR_ECC_UNCORRECTABLE",
               "uncorrectable ECC error encountered"},
    error_text{215, "cudaErrorUnsupportedLimit", "CUDA_ERROR_UNSUPPORTED_LIMIT",
               "limit is not supported on this architecture"},
    error_text{216, "cudaErrorDeviceAlreadyInUse", "CUDA_ERROR_CONTEXT_ALREADY_IN_USE",
               "exclusive-thread device already in use by a different thread"},
    error_text{217, "cudaErrorPeerAccessUnsupported", "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
               "peer access is not supported between these two devices"},
    error_text{218, "cudaErrorInvalidPtx", "CUDA_ERROR_INVALID_PTX",
               "a PTX JIT compilation failed"},
    error_text{219, "cudaErrorInvalidGraphicsContext", "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT",
               "invalid OpenGL or DirectX context"},
    error_text{220, "cudaErrorNvlinkUncorrectable", "CUDA_ERROR_NVLINK_UNCORRECTABLE",
               "uncorrectable NVLink error detected during the execution"},
    error_text{221, "cudaErrorJitCompilerNotFound", "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
               "PTX JIT compiler library not found"},
    error_text{222, "cudaErrorUnsupportedPtxVersion", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
               "the provided PTX was compiled with an unsupported toolchain."},
    error_text{223, "cudaErrorJitCompilationDisabled", "CUDA_ERROR_JIT_COMPILATION_DISABLED",
               "PTX JIT compilation was disabled"},
    error_text{226, "cudaErrorContained", "CUDA_ERROR_CONTAINED",
               "Invalid access of peer GPU memory over nvlink or a hardware error"},
    error_text{300, "cudaErrorInvalidSource", "CUDA_ERROR_INVALID_SOURCE",
               "device kernel image is invalid"},
    error_text{301, "cudaErrorFileNotFound", "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    error_text{302, "cudaErrorSharedObjectSymbolNotFound",
               "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "shared object symbol not found"},
    error_text{303, "cudaErrorSharedObjectInitFailed", "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED",
               "shared object initialization failed"},
    error_text{304, "cudaErrorOperatingSystem", "CUDA_ERROR_OPERATING_SYSTEM",
               "OS call failed or operation not supported on this OS"},
    error_text{400, "cudaErrorInvalidResourceHandle", "CUDA_ERROR_INVALID_HANDLE",
               "invalid resource handle"},
    error_text{401, "cudaErrorIllegalState", "CUDA_ERROR_ILLEGAL_STATE",
               "the operation cannot be performed in the present state"},
    error_text{402, "cudaErrorLossyQuery", "CUDA_ERROR_LOSSY_QUERY",
               "attempted introspection would be semantically lossy"},
    error_text{500, "cudaErrorSymbolNotFound", "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    error_text{600, "cudaErrorNotReady", "CUDA_ERROR_NOT_READY", "device not ready"},
    error_text{700, "cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS",
               "an illegal memory access was encountered"},
    error_text{701, "cudaErrorLaunchOutOfResources", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
               "too many resources requested for launch"},
    error_text{702, "cudaErrorLaunchTimeout", "CUDA_ERROR_LAUNCH_TIMEOUT",
               "the launch timed out and was terminated"},
    error_text{704, "cudaErrorPeerAccessAlreadyEnabled", "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
               "peer access is already enabled"},
    error_text{705, "cudaErrorPeerAccessNotEnabled", "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
               "peer access has not been enabled"},
    error_text{708, "cudaErrorSetOnActiveProcess", "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
               "cannot set while device is active in this process"},
    error_text{709, "cudaErrorContextIsDestroyed", "CUDA_ERROR_CONTEXT_IS_DESTROYED",
               "context is destroyed"},
    error_text{710, "cudaErrorAssert", "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    error_text{711, "cudaErrorTooManyPeers", "CUDA_ERROR_TOO_MANY_PEERS",
               "peer mapping resources exhausted"},
    error_text{712, "cudaErrorHostMemoryAlreadyRegistered",
               "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
               "part or all of the requested memory range is already mapped"},
    error_text{713, "cudaErrorHostMemoryNotRegistered", "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
               "pointer does not correspond to a registered memory region"},
    error_text{714, "cudaErrorHardwareStackError", "CUDA_ERROR_HARDWARE_STACK_ERROR",
               "hardware stack error"},
    error_text{715, "cudaErrorIllegalInstruction", "CUDA_ERROR_ILLEGAL_INSTRUCTION",
               "an illegal instruction was encountered"},
    error_text{716, "cudaErrorMisalignedAddress", "CUDA_ERROR_MISALIGNED_ADDRESS",
               "misaligned address"},
    error_text{717, "cudaErrorInvalidAddressSpace", "CUDA_ERROR_INVALID_ADDRESS_SPACE",
               "operation not supported on global/shared address space"},
    error_text{718, "cudaErrorInvalidPc", "CUDA_ERROR_INVALID_PC", "invalid program counter"},
    error_text{719, "cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED",
               "unspecified launch failure"},
    error_text{800, "cudaErrorNotPermitted", "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    error_text{801, "cudaErrorNotSupported", "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    error_text{802, "cudaErrorSystemNotReady", "CUDA_ERROR_SYSTEM_NOT_READY",
               "system not yet initialized"},
    error_text{803, "cudaErrorSystemDriverMismatch", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
               "system has unsupported display driver / cuda driver combination"},
    error_text{804, "cudaErrorCompatNotSupportedOnDevice",
               "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
               "forward compatibility was attempted on non supported HW"},
    error_text{805, "cudaErrorMpsConnectionFailed", "CUDA_ERROR_MPS_CONNECTION_FAILED",
               "MPS client failed to connect to the MPS control daemon or the MPS server"},
    error_text{806, "cudaErrorMpsRpcFailure", "CUDA_ERROR_MPS_RPC_FAILURE",
               "the remote procedural call between the MPS server and the MPS client failed"},
    error_text{807, "cudaErrorMpsServerNotReady", "CUDA_ERROR_MPS_SERVER_NOT_READY",
               "MPS server is not ready to accept new MPS client requests"},
    error_text{808, "cudaErrorMpsMaxClientsReached", "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
               "the hardware resources required to create MPS client have been exhausted"},
    error_text{809, "cudaErrorMpsMaxConnectionsReached", "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
               "the hardware resources required to support device connections have been exhausted"},
    error_text{810, "cudaErrorMpsClientTerminated", "CUDA_ERROR_MPS_CLIENT_TERMINATED",
               "the MPS client has been terminated by the server"},
    error_text{900, "cudaErrorStreamCaptureUnsupported", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
               "operation not permitted when stream is capturing"},
    error_text{901, "cudaErrorStreamCaptureInvalidated", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
               "operation failed due to a previous error during capture"},
    error_text{906, "cudaErrorStreamCaptureImplicit", "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
               "operation would make the legacy stream depend on a capturing blocking stream"},
    error_text{907, "cudaErrorCapturedEvent", "CUDA_ERROR_CAPTURED_EVENT",
               "operation not permitted on an event last recorded in a capturing stream"},
    error_text{908, "cudaErrorStreamCaptureWrongThread", "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
               "attempt to terminate a thread-local capture sequence from another thread"},
    error_text{909, "cudaErrorTimeout", "CUDA_ERROR_TIMEOUT", "wait operation timed out"},
    error_text{911, "cudaErrorExternalDevice", "CUDA_ERROR_EXTERNAL_DEVICE",
               "an async error has occured in external entity outside of CUDA"},
    error_text{914, "cudaErrorInvalidResourceType", "CUDA_ERROR_INVALID_RESOURCE_TYPE",
               "one or more resources passed in are not valid resource types for the operation"},
    error_text{915, "cudaErrorInvalidResourceConfiguration",
               "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
               "one or more resources are insufficient or non-applicable for the operation"},
    error_text{999, "cudaErrorUnknown", "CUDA_ERROR_UNKNOWN", "unknown error"},
};

}  // namespace

error_text const* find_error(int code) noexcept {
  auto const* const found =
      std::find_if(known_errors.begin(), known_errors.end(),
                   [=](error_text const& known) { return known.code == code; });
  return found == known_errors.end() ? nullptr : found;
}

}  // namespace pyxfer::hostrt

using namespace pyxfer::hostrt;

namespace {

// The real runtime's text.
constexpr char const* unrecognized = "unrecognized error code";

}  // namespace

// Not `runtime_call`, because these two return an error without storing it as the last one.
cudaError_t cudaGetLastError() {
  return guarded<index_of("cudaGetLastError")>([] {
    auto const last = std::exchange(this_thread().last_error, cudaSuccess);
    auto const lost = loss_code(this_thread().device);
    return lost != cudaSuccess ? lost : last;
  });
}

cudaError_t cudaPeekAtLastError() {
  return guarded<index_of("cudaPeekAtLastError")>([] {
    auto const lost = loss_code(this_thread().device);
    return lost != cudaSuccess ? lost : this_thread().last_error;
  });
}

char const* cudaGetErrorName(cudaError_t error) {
  (void)admit(index_of("cudaGetErrorName"));
  auto const* const known = find_error(error);
  return known == nullptr ? unrecognized : known->runtime_name;
}

char const* cudaGetErrorString(cudaError_t error) {
  (void)admit(index_of("cudaGetErrorString"));
  auto const* const known = find_error(error);
  return known == nullptr ? unrecognized : known->text;
}
