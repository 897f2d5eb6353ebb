#include "module.hpp"

#include <string_view>
#include <utility>

#include "device.hpp"
#include "entry.hpp"
#include "kernels.hpp"
#include "stream_registry.hpp"

namespace pyxfer::hostrt {
namespace {

/// The entries of a text, which are read once and never freed, because records have their names.
std::vector<ptx_entry> const& entries_of(char const* text) {
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::map<std::string, std::vector<ptx_entry>>;
  std::scoped_lock const lock{mutex};
  auto const found = known.find(text);
  return found != known.end() ? found->second : known.emplace(text, read_ptx(text)).first->second;
}

}  // namespace

CUmodule module_registry::load(int device, char const* text) {
  auto const& entries = entries_of(text);
  std::scoped_lock const lock{mutex_};
  module made{device, {}};
  for (auto const& entry : entries) {
    auto const handle = next_handle();
    made.functions.emplace(entry.name, handle);
    kernels_.emplace(handle, loaded_kernel{&entry, device});
  }
  auto const handle = next_handle();
  modules_.emplace(handle, std::move(made));
  return reinterpret_cast<CUmodule>(handle);
}

bool module_registry::unload(CUmodule handle) {
  std::scoped_lock const lock{mutex_};
  auto const found = modules_.find(reinterpret_cast<std::uintptr_t>(handle));
  if (found == modules_.end()) return false;
  for (auto const& [name, function] : found->second.functions) kernels_.erase(function);
  modules_.erase(found);
  return true;
}

CUfunction module_registry::function(CUmodule handle, std::string const& name) const {
  std::scoped_lock const lock{mutex_};
  auto const& functions = modules_.at(reinterpret_cast<std::uintptr_t>(handle)).functions;
  auto const found = functions.find(name);
  return found == functions.end() ? nullptr : reinterpret_cast<CUfunction>(found->second);
}

std::optional<loaded_kernel> module_registry::find(CUfunction handle) const {
  std::scoped_lock const lock{mutex_};
  auto const found = kernels_.find(reinterpret_cast<std::uintptr_t>(handle));
  return found == kernels_.end() ? std::nullopt : std::optional{found->second};
}

std::optional<int> module_registry::device_of(CUmodule handle) const {
  std::scoped_lock const lock{mutex_};
  auto const found = modules_.find(reinterpret_cast<std::uintptr_t>(handle));
  return found == modules_.end() ? std::nullopt : std::optional{found->second.device};
}

std::vector<std::uintptr_t> module_registry::handles() const {
  std::scoped_lock const lock{mutex_};
  std::vector<std::uintptr_t> values;
  values.reserve(modules_.size());
  for (auto const& [handle, loaded] : modules_) values.push_back(handle);
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
    auto const* const text = static_cast<char const*>(image);
    if (std::string_view{text}.find(".version") == std::string_view::npos) {
      return cudaErrorInvalidKernelImage;
    }
    try {
      *made = modules().load(this_thread().device, text);
      return cudaSuccess;
    } catch (invalid_ptx const&) { return cudaErrorInvalidPtx; }
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
    queue_kernel(*kernel->entry, blocks_x, threads_x, on, parameters, delay);
    return cudaSuccess;
  });
}

}  // namespace pyxfer::hostrt::driver
