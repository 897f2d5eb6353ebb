#include "cuda/capture.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"
#include "cuda/stream.hpp"

#include <stdexcept>

namespace pyxfer {
namespace {

/// Sets this thread's mode, and writes the previous one to `mode`.
void exchange(CUstreamCaptureMode& mode) {
  PYXFER_TRY(driver().cuThreadExchangeStreamCaptureMode(&mode));
}

}  // namespace

capture_relaxation::capture_relaxation() {
  note_process();
  exchange(previous_);
}

capture_relaxation::~capture_relaxation() {
  release_noexcept([this] { exchange(previous_); });
}

void relax_captures_in_this_thread() {
  note_process();
  auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  exchange(mode);
}

bool is_capturing(stream_view on) {
  auto found = CU_STREAM_CAPTURE_STATUS_NONE;
  auto const status = driver().cuStreamIsCapturing(on.handle(), &found);
  // The legacy stream waits for all blocking streams, and one of them is being captured.
  if (status == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) { return true; }
  PYXFER_TRY_STATUS("cuStreamIsCapturing", status);
  return found != CU_STREAM_CAPTURE_STATUS_NONE;
}

void require_no_capture(stream_view on) {
  if (is_capturing(on)) {
    throw std::invalid_argument(
        "the stream is being captured into a CUDA graph: make this transfer before or after the "
        "capture");
  }
}

}  // namespace pyxfer
