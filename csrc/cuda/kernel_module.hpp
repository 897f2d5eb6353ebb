#pragma once

#include "cuda/owned_handle.hpp"

#include <cuda.h>

namespace pyxfer {

/// Kernels that the driver compiles from PTX, in the primary context of one device.
class kernel_module : public owned_handle<CUmodule> {
 public:
  /// Throws `kernels_unavailable_error` if the driver does not make them.
  kernel_module(int device, char const* text);

  [[nodiscard]] double load_s() const noexcept { return load_s_; }
  [[nodiscard]] CUfunction function(char const* name) const;

 private:
  double load_s_;
};

}  // namespace pyxfer
