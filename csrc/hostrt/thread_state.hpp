#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pyxfer::hostrt {

/// What the runtime keeps for every calling thread.
struct thread_state {
  int device = 0;
  bool has_context = false;
  bool in_host_function = false;
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  /// Of the call that is being made, where it is recorded.
  std::uint32_t correlation = 0;
};

inline thread_state& this_thread() noexcept {
  thread_local thread_state state;
  return state;
}

}  // namespace pyxfer::hostrt
