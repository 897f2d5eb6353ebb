#pragma once

#include <cuda.h>

#include "entry.hpp"

namespace pyxfer::hostrt {

/// `guarded` for a driver call. The codes that both share have the same numbers.
template <std::size_t Call, typename Body>
CUresult driver_call(Body const& body) noexcept {
  return static_cast<CUresult>(guarded<Call>(body));
}

}  // namespace pyxfer::hostrt
