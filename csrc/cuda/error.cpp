#include "cuda/error.hpp"

#include "cuda/driver.hpp"

#include <cctype>
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

}  // namespace pyxfer
