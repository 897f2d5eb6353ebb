#pragma once

#include "cuda/stream.hpp"

#include <cuda.h>

namespace pyxfer {

/// Lets this thread make any call while another thread captures a CUDA graph.
///
/// While a capture in global mode is under way (the default of torch.cuda.graph), the driver
/// refuses allocations and queries of events with 900 in every other thread, and invalidates that
/// capture: the other library's work would be lost (PyTorch met it with NCCL, pytorch#148594). In
/// relaxed mode it refuses only what concerns the captured streams and events themselves.
class capture_relaxation {
 public:
  capture_relaxation();
  ~capture_relaxation();
  capture_relaxation(capture_relaxation const&) = delete;
  capture_relaxation& operator=(capture_relaxation const&) = delete;
  capture_relaxation(capture_relaxation&&) = delete;
  capture_relaxation& operator=(capture_relaxation&&) = delete;

 private:
  CUstreamCaptureMode previous_{CU_STREAM_CAPTURE_MODE_RELAXED};
};

/// The same for the rest of this thread, for threads of the engine.
void relax_captures_in_this_thread();

/// Whether work given to the stream now would go into a CUDA graph, or invalidate a capture.
[[nodiscard]] bool is_capturing(stream_view on);

/// Throws std::invalid_argument where the stream is being captured.
void require_no_capture(stream_view on);

}  // namespace pyxfer
