#pragma once

#include "bind/bind.hpp"

#include <cuda_runtime_api.h>

namespace pyxfer {

inline void bind_everything(pybind11::module_& module) {
  module.attr("RUNTIME") = runtime_word();
  module.attr("RUNTIME_VERSION") = CUDART_VERSION;
  bind_errors();
  bind_device(module);
  bind_memory(module);
  bind_stream(module);
  bind_copy(module);
  bind_ring(module);
  bind_dlpack(module);
  bind_trace(module);
  bind_links(module);
  bind_blocks(module);
  bind_runtime_own(module);
}

}  // namespace pyxfer
