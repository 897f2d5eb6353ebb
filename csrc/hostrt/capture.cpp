#include "capture.hpp"

#include <algorithm>

#include "entry.hpp"

namespace pyxfer::hostrt {
namespace {

template <typename Which>
bool has_stream(capture const& active, Which const& which) {
  return std::any_of(active.streams.begin(), active.streams.end(),
                     [&](auto const& one) { return which(*one); });
}

bool holds(capture const& active, stream const& on) {
  return has_stream(active, [&](stream const& one) { return &one == &on; });
}

/// The rules are those in the documentation of cuThreadExchangeStreamCaptureMode.
bool forbids_unsafe_calls(capture const& active) {
  auto const mode = this_thread().capture_mode;
  if (mode == cudaStreamCaptureModeRelaxed) return false;
  if (active.thread == std::this_thread::get_id())
    return active.mode != cudaStreamCaptureModeRelaxed;
  return mode == cudaStreamCaptureModeGlobal && active.mode == cudaStreamCaptureModeGlobal;
}

/// Whether work on `on` would be ordered with a blocking stream in the capture.
bool forbids_legacy(capture const& active, stream const& on) {
  return on.is_legacy() && has_stream(active, [&](stream const& one) {
           return one.blocking() && one.device() == on.device();
         });
}

}  // namespace

cudaError_t capture_registry::begin(std::shared_ptr<stream> const& on, cudaStreamCaptureMode mode) {
  if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed) {
    return cudaErrorInvalidValue;
  }
  if (on->is_legacy()) return cudaErrorStreamCaptureUnsupported;
  std::scoped_lock const lock{mutex_};
  if (find(*on) != under_way_.end()) return cudaErrorIllegalState;
  under_way_.push_back(std::make_shared<capture>(capture{{on}, std::this_thread::get_id(), mode}));
  any_ = true;
  return cudaSuccess;
}

cudaError_t capture_registry::end(stream const& on) {
  std::scoped_lock const lock{mutex_};
  auto const found = find(on);
  if (found == under_way_.end()) return cudaErrorIllegalState;
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): kept beyond the erasure
  auto const ended = *found;
  if (ended->streams.front().get() != &on) return cudaErrorStreamCaptureUnmatched;
  auto const same_thread = ended->thread == std::this_thread::get_id();
  if (!same_thread && ended->mode != cudaStreamCaptureModeRelaxed) {
    return cudaErrorStreamCaptureWrongThread;
  }
  under_way_.erase(found);
  any_ = !under_way_.empty();
  return ended->valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}

void capture_registry::forget_all() {
  std::scoped_lock const lock{mutex_};
  under_way_.clear();
  any_ = false;
}

std::shared_ptr<capture> capture_registry::of(stream const& on) const {
  if (!any_) return nullptr;
  std::scoped_lock const lock{mutex_};
  auto const found = find(on);
  return found == under_way_.end() ? nullptr : *found;
}

cudaError_t capture_registry::status(stream const& on, cudaStreamCaptureStatus& status) const {
  std::scoped_lock const lock{mutex_};
  auto const refuses = [&](auto const& active) { return forbids_legacy(*active, on); };
  if (std::any_of(under_way_.begin(), under_way_.end(), refuses)) {
    return cudaErrorStreamCaptureImplicit;
  }
  auto const found = find(on);
  status = cudaStreamCaptureStatusNone;
  if (found == under_way_.end()) return cudaSuccess;
  status = (*found)->valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t capture_registry::admit_unsafe() {
  return admit(cudaErrorStreamCaptureUnsupported, forbids_unsafe_calls);
}

cudaError_t capture_registry::admit_work(stream const& on) {
  auto const invalid = admit(cudaErrorStreamCaptureInvalidated, [&](capture const& active) {
    return !active.valid && holds(active, on);
  });
  if (invalid != cudaSuccess) return invalid;
  return admit(cudaErrorStreamCaptureImplicit,
               [&](capture const& active) { return forbids_legacy(active, on); });
}

cudaError_t capture_registry::admit_query(stream const& on) {
  return admit(cudaErrorStreamCaptureUnsupported,
               [&](capture const& active) { return holds(active, on); });
}

cudaError_t capture_registry::admit_device_query(int device) {
  return admit(cudaErrorStreamCaptureUnsupported, [&](capture const& active) {
    return has_stream(active, [&](stream const& one) { return one.device() == device; });
  });
}

cudaError_t capture_registry::admit_event_query(std::shared_ptr<capture> const& captured_by) {
  if (!captured_by) return cudaSuccess;
  (void)admit(cudaErrorCapturedEvent,
              [&](capture const& active) { return &active == captured_by.get(); });
  return cudaErrorCapturedEvent;  // even if the capture has ended
}

cudaError_t capture_registry::admit_wait(std::shared_ptr<stream> const& waiting,
                                         std::shared_ptr<capture> const& captured_by) {
  auto const waiting_is_in = of(*waiting);
  if (waiting_is_in == captured_by) return cudaSuccess;
  if (waiting_is_in) {
    return admit(captured_by ? cudaErrorStreamCaptureMerge : cudaErrorStreamCaptureIsolation,
                 [&](capture const& active) { return &active == waiting_is_in.get(); });
  }
  std::scoped_lock const lock{mutex_};
  auto const found = std::find(under_way_.begin(), under_way_.end(), captured_by);
  if (found == under_way_.end() || !captured_by->valid) return cudaErrorInvalidValue;
  captured_by->streams.push_back(waiting);
  return cudaSuccess;
}

capture_registry::captures_under_way::const_iterator capture_registry::find(
    stream const& on) const {
  return std::find_if(under_way_.begin(), under_way_.end(),
                      [&](auto const& active) { return holds(*active, on); });
}

template <typename Refuses>
cudaError_t capture_registry::admit(cudaError_t code, Refuses const& refuses) {
  if (!any_) return cudaSuccess;
  std::scoped_lock const lock{mutex_};
  auto result = cudaSuccess;
  for (auto const& active : under_way_) {
    if (!refuses(*active)) continue;
    active->valid = false;
    result = code;
  }
  return result;
}

capture_registry& captures() {
  static auto& the_captures = *new capture_registry;
  return the_captures;
}

}  // namespace pyxfer::hostrt
