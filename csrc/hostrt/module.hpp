#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernels.hpp"

namespace pyxfer::hostrt {

struct loaded_kernel {
  kernel_code const* code;
  std::uintptr_t module;
  int device;
};

class module_registry {
 public:
  [[nodiscard]] CUmodule load(int device, std::vector<kernel_code> const& kernels);
  [[nodiscard]] bool unload(CUmodule handle);
  /// Null if the module has no such entry.
  [[nodiscard]] CUfunction function(CUmodule handle, std::string const& name) const;
  [[nodiscard]] std::optional<loaded_kernel> find(CUfunction handle) const;
  [[nodiscard]] std::optional<int> device_of(CUmodule handle) const;
  [[nodiscard]] std::vector<std::uintptr_t> handles() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, int> devices_;  ///< by module
  std::map<std::uintptr_t, loaded_kernel> kernels_;
};

[[nodiscard]] module_registry& modules();

}  // namespace pyxfer::hostrt

namespace pyxfer::hostrt::driver {

CUresult module_load_data(CUmodule* made, void const* image);
CUresult module_unload(CUmodule handle);
CUresult module_get_function(CUfunction* found, CUmodule handle, char const* name);
CUresult launch_kernel(CUfunction function, unsigned int blocks_x, unsigned int blocks_y,
                       unsigned int blocks_z, unsigned int threads_x, unsigned int threads_y,
                       unsigned int threads_z, unsigned int shared_bytes, CUstream stream,
                       void** parameters, void** extra);

}  // namespace pyxfer::hostrt::driver
