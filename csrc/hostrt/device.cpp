#include "device.hpp"

#include "injection.hpp"

namespace pyxfer::hostrt {

bool is_device(int ordinal) noexcept { return ordinal >= 0 && ordinal < injected().device_count(); }

std::optional<int> attribute(cudaDeviceAttr attr) noexcept {
  if (auto const ordered = injected().attribute(attr)) return ordered;
  switch (attr) {
    case cudaDevAttrAsyncEngineCount: return 2;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrHostRegisterReadOnlySupported: return 1;
    case cudaDevAttrComputeCapabilityMajor:
    case cudaDevAttrComputeCapabilityMinor:
    case cudaDevAttrIntegrated:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables: return 0;
    default: return std::nullopt;
  }
}

int driver_version() noexcept {
  return injected().no_driver() == cudaErrorInsufficientDriver ? 0 : CUDART_VERSION;
}

}  // namespace pyxfer::hostrt
