#include "cuda/error.hpp"

#include <string>

namespace pyxfer {
namespace {

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
