#include "cuda/error.hpp"

#include "cuda/driver.hpp"

#include <cctype>
#include <string>
#include <utility>

namespace pyxfer {
namespace {

/// Finds the function's name in "driver().cuEventRecord(e, s)" or "cudaMalloc(&p, n)": it begins
/// with "cu".
std::string called_function(std::string const& expression) {
  auto const begin = expression.find("cu");
  if (begin == std::string::npos) { return expression; }
  auto end = begin;
  while (
      end < expression.size() &&
      (std::isalnum(static_cast<unsigned char>(expression[end])) != 0 || expression[end] == '_')) {
    ++end;
  }
  return expression.substr(begin, end - begin);
}

bool is_unavailable(int code) {
  return code == cudaErrorInsufficientDriver || code == cudaErrorNoDevice ||
         code == cudaErrorStubLibrary;
}

/// What loading a module returns if the driver cannot make its kernels.
bool is_without_kernels(int code) {
  switch (code) {
    case cudaErrorInvalidKernelImage:
    case cudaErrorInvalidPtx:
    case cudaErrorInvalidSource:
    case cudaErrorJitCompilationDisabled:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion: return true;
    default: return false;
  }
}

/// Codes after which no call in this process succeeds.
bool is_lost(int code) {
  switch (code) {
    // "The process must be terminated" (driver_types.h).
    case cudaErrorAssert:
    case cudaErrorContained:
    case cudaErrorExternalDevice:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress:
    case cudaErrorMpsClientTerminated:
    case cudaErrorTensorMemoryLeak:
    // The header does not say this of the next three. The driver returns a hardware fault from
    // every later call, and so 999, which a GPU that left the bus returns.
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorUnknown:
    // After cudaDeviceReset: the engine's handles belong to the destroyed context.
    case cudaErrorContextIsDestroyed: return true;
    default: return false;
  }
}

[[noreturn]] void throw_typed(int code, std::string name, std::string call, std::string where,
                              std::string description) {
  auto const raise = [&](auto tag) {
    using kind = typename decltype(tag)::type;
    throw kind(code, std::move(name), std::move(call), std::move(where), std::move(description));
  };
  if (is_unavailable(code)) { raise(std::common_type<unavailable_error>{}); }
  if (code == cudaErrorMemoryAllocation) { raise(std::common_type<memory_error>{}); }
  if (is_without_kernels(code)) { raise(std::common_type<kernels_unavailable_error>{}); }
  if (is_lost(code)) { raise(std::common_type<device_lost_error>{}); }
  throw cuda_error(code, std::move(name), std::move(call), std::move(where),
                   std::move(description));
}

/// 12090 -> "12.9", as NVIDIA writes it.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// The CUDA 13 runtime needs a later driver than CUDA 12 ("CUDA Compatibility", minor version
/// compatibility).
constexpr char const* least_driver = CUDART_VERSION >= 13000 ? "580" : "525";
constexpr char const* least_cuda = CUDART_VERSION >= 13000 ? "13.0" : "12.0";

std::string driver_hint() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return std::string{"No NVIDIA driver answers here: install one ("} + least_driver +
           " or later), or start the container with its GPUs passed in.";
  }
  return "The NVIDIA driver here speaks CUDA " + version_text(driver) + " and pyxfer needs " +
         least_cuda + ": install driver " + least_driver + " or later.";
}

}  // namespace

cuda_error::cuda_error(int code, std::string name, std::string call, std::string where,
                       std::string description)
    : std::runtime_error{call + " failed with " + name + " (" + std::to_string(code) +
                         "): " + description},
      code_{code},
      name_{std::move(name)},
      call_{std::move(call)},
      where_{std::move(where)},
      description_{std::move(description)} {}

void throw_error(cudaError_t status, char const* expression, char const* where) {
  static_cast<void>(cudaGetLastError());  // else a later call would report it again
  throw_typed(static_cast<int>(status), cudaGetErrorName(status), called_function(expression),
              where, cudaGetErrorString(status));
}

void throw_error(CUresult status, char const* expression, char const* where) {
  char const* name = nullptr;
  char const* text = nullptr;
  driver_error_text(status, &name, &text);
  throw_typed(static_cast<int>(status), name, called_function(expression), where, text);
}

std::string hint_for(int code) {
  switch (code) {
    case cudaErrorInsufficientDriver: return driver_hint();
    case cudaErrorNoDevice:
      return "The driver sees no GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES, and that the "
             "container was given its GPUs.";
    case cudaErrorStubLibrary:
      return "A stub libcuda.so comes before the driver's own: take the toolkit's stubs folder off "
             "LD_LIBRARY_PATH.";
    case cudaErrorMemoryAllocation:
      return "Memory ran out: ask for smaller sizes, or free what other processes hold (nvidia-smi "
             "shows them). Page-locked memory is limited by free RAM, the container's limit and "
             "ulimit -l.";
    case cudaErrorInitializationError:
      return "The driver could not start: after a fork, start workers with multiprocessing's "
             "\"spawn\"; otherwise check nvidia-smi.";
    case cudaErrorCallRequiresNewerDriver:
      return "This driver is too old for that call: update it, or choose another mode.";
    case cudaErrorSystemNotReady:
      return "The system is still starting its GPUs: check that nvidia-fabricmanager runs.";
    case cudaErrorSystemDriverMismatch:
      return "The loaded kernel driver and the installed user libraries differ: reboot, or reload "
             "the driver.";
    case cudaErrorDevicesUnavailable:
      return "The GPU is busy or in exclusive mode: end the process that holds it, or choose "
             "another with --device.";
    case cudaErrorJitCompilerNotFound:
      return "The driver's compiler of kernels, libnvidia-ptxjitcompiler.so.1, is not installed "
             "here: "
             "install it with the driver, or start the container with the driver capability "
             "\"compute\".";
    case cudaErrorJitCompilationDisabled:
      return "CUDA_DISABLE_PTX_JIT is set in the environment: unset it.";
    case cudaErrorPeerAccessUnsupported:
      return "These two GPUs cannot read each other's memory: copies between them go through the "
             "host.";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "That memory is page-locked already: use it as pinned memory.";
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorUnknown:
      return "The GPU has a fault or has left the bus: look for Xid in dmesg; only a new process "
             "can use it again.";
    case cudaErrorContextIsDestroyed:
      return "The device was reset in this process, perhaps by another library (cudaDeviceReset): "
             "only a new process can use it again.";
    case cudaErrorMpsClientTerminated:
      return "The MPS server ended this process's use of the GPU: look at the server's log; only a "
             "new process can use it again.";
    case cudaErrorAssert:
    case cudaErrorContained:
    case cudaErrorExternalDevice:
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress:
    case cudaErrorTensorMemoryLeak:
      return "The device is in an error state that an earlier operation left, perhaps another "
             "library's: only a new process can use it again.";
    default: return "";
  }
}

}  // namespace pyxfer
