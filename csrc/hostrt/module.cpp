#include "module.hpp"

#include <iterator>
#include <stdexcept>

#include "device.hpp"
#include "entry.hpp"
#include "kernels.hpp"
#include "stream_registry.hpp"

namespace pyxfer::hostrt {

CUmodule module_registry::load(int device, std::vector<kernel_code> const& kernels) {
  std::scoped_lock const lock{mutex_};
  auto const handle = next_handle();
  for (auto const& each : kernels) kernels_[next_handle()] = {&each, handle, device};
  devices_[handle] = device;
  return reinterpret_cast<CUmodule>(handle);
}

bool module_registry::unload(CUmodule handle) {
  std::scoped_lock const lock{mutex_};
  auto const module = reinterpret_cast<std::uintptr_t>(handle);
  for (auto at = kernels_.begin(); at != kernels_.end();) {
    at = at->second.module == module ? kernels_.erase(at) : std::next(at);
  }
  return devices_.erase(module) != 0;
}

CUfunction module_registry::function(CUmodule handle, std::string const& name) const {
  std::scoped_lock const lock{mutex_};
  auto const module = reinterpret_cast<std::uintptr_t>(handle);
  for (auto const& [function, kernel] : kernels_) {
    if (kernel.module == module && kernel.code->name == name) {
      return reinterpret_cast<CUfunction>(function);
    }
  }
  return nullptr;
}

std::optional<loaded_kernel> module_registry::find(CUfunction handle) const {
  std::scoped_lock const lock{mutex_};
  auto const found = kernels_.find(reinterpret_cast<std::uintptr_t>(handle));
  return found == kernels_.end() ? std::nullopt : std::optional{found->second};
}

std::optional<int> module_registry::device_of(CUmodule handle) const {
  std::scoped_lock const lock{mutex_};
  auto const found = devices_.find(reinterpret_cast<std::uintptr_t>(handle));
  return found == devices_.end() ? std::nullopt : std::optional{found->second};
}

std::vector<std::uintptr_t> module_registry::handles() const {
  std::scoped_lock const lock{mutex_};
  std::vector<std::uintptr_t> values;
  for (auto const& [handle, device] : devices_) values.push_back(handle);
  return values;
}

module_registry& modules() {
  static auto& the_modules = *new module_registry;
  return the_modules;
}

}  // namespace pyxfer::hostrt

namespace pyxfer::hostrt::driver {

CUresult module_load_data(CUmodule* made, void const* image) {
  return driver_call<index_of("cuModuleLoadData")>([&] {
    if (made == nullptr || image == nullptr) return cudaErrorInvalidValue;
    if (!this_thread().has_context) return cudaErrorDeviceUninitialized;
    if (context_destroyed(this_thread().device)) return cudaErrorContextIsDestroyed;
    std::string const text{static_cast<char const*>(image)};
    if (text.find(".version") == std::string::npos) return cudaErrorInvalidKernelImage;
    try {
      *made = modules().load(this_thread().device, kernels_of(text));
      return cudaSuccess;
    } catch (std::logic_error const&) { return cudaErrorInvalidPtx; }
  });
}

CUresult module_unload(CUmodule handle) {
  return driver_call<index_of("cuModuleUnload")>([&] {
    auto const device = modules().device_of(handle);
    if (!device || !modules().unload(handle)) return cudaErrorInvalidResourceHandle;
    return context_destroyed(*device) ? cudaErrorContextIsDestroyed : cudaSuccess;
  });
}

CUresult module_get_function(CUfunction* found, CUmodule handle, char const* name) {
  return driver_call<index_of("cuModuleGetFunction")>([&] {
    if (found == nullptr || name == nullptr) return cudaErrorInvalidValue;
    if (!modules().device_of(handle)) return cudaErrorInvalidResourceHandle;
    *found = modules().function(handle, name);
    return *found == nullptr ? cudaErrorSymbolNotFound : cudaSuccess;
  });
}

CUresult launch_kernel(CUfunction function, unsigned int blocks_x, unsigned int blocks_y,
                       unsigned int blocks_z, unsigned int threads_x, unsigned int threads_y,
                       unsigned int threads_z, unsigned int /*shared_bytes*/, CUstream stream,
                       void** parameters, void** /*extra*/) {
  return driver_call<index_of("cuLaunchKernel")>([&](ordered_delay const& delay) {
    constexpr unsigned int most_threads = 1024;
    auto const blocks = std::uint64_t{blocks_x} * blocks_y * blocks_z;
    auto const threads = std::uint64_t{threads_x} * threads_y * threads_z;
    if (blocks == 0 || threads == 0 || threads > most_threads || parameters == nullptr) {
      return cudaErrorInvalidValue;
    }
    // The interpreter knows the first dimension only.
    if (blocks != blocks_x || threads != threads_x) return cudaErrorNotSupported;
    auto const kernel = modules().find(function);
    if (!kernel) return cudaErrorInvalidResourceHandle;
    std::shared_ptr<hostrt::stream> on;
    if (auto const code = find_for_work(stream, on); code != cudaSuccess) return code;
    if (kernel->device != on->device()) return cudaErrorInvalidResourceHandle;
    queue_kernel(*kernel->code, blocks_x, threads_x, on, parameters, delay);
    return cudaSuccess;
  });
}

}  // namespace pyxfer::hostrt::driver
