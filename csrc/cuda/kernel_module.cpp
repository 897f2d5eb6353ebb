#include "cuda/kernel_module.hpp"

#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "cuda/wait.hpp"

namespace pyxfer {

kernel_module::kernel_module(int device, char const* text)
    : owned_handle{device, [](CUmodule loaded) { PYXFER_TRY(driver().cuModuleUnload(loaded)); }} {
  device_guard const guard{device};
  auto const begin = host_clock::now();
  CUmodule loaded{};
  PYXFER_TRY(driver().cuModuleLoadData(&loaded, text));
  load_s_ = seconds_between(begin, host_clock::now());
  own(loaded);
}

CUfunction kernel_module::function(char const* name) const {
  CUfunction found{};
  PYXFER_TRY(driver().cuModuleGetFunction(&found, handle(), name));
  return found;
}

}  // namespace pyxfer
