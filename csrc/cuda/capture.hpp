#pragma once

#include <cuda.h>

namespace pyxfer {

class stream_view;

/// Lets this thread make any call while another thread captures a CUDA graph.
///
/// During a capture in global mode (the default of torch.cuda.graph) the driver refuses allocations
/// and event queries of every other thread with error 900, and invalidates the capture, so the
/// other library's work would be lost (pytorch#148594 describes this with NCCL). In relaxed mode it
/// only refuses calls on the captured streams and events themselves.
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

/// The same, until this thread ends; for the engine's own threads.
void relax_captures_in_this_thread();

/// Whether work that is queued on the stream now would go into a CUDA graph, or invalidate one.
[[nodiscard]] bool is_capturing(stream_view on);

/// Throws std::invalid_argument if the stream is being captured.
void require_no_capture(stream_view on);

}  // namespace pyxfer
