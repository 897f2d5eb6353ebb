#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace pyxfer {

class stream_view;

struct device_properties {
  std::string name;
  std::string uuid;  ///< "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  std::string pci;   ///< empty if the device is not on a PCI bus
  std::size_t memory_bytes;
  int compute_major;
  int compute_minor;
  int copy_engines;
  bool integrated;
};

[[nodiscard]] int device_count();
[[nodiscard]] int driver_version();
[[nodiscard]] device_properties properties_of(int device);
[[nodiscard]] std::pair<std::size_t, std::size_t> memory_info(int device);

/// The value of an attribute of cudaDeviceAttr.
[[nodiscard]] int device_attribute(int device, cudaDeviceAttr attribute);

/// Waits for all work on the device, including that of other libraries' streams.
void synchronize_device(int device);

/// Whether the kernels and copy engines of `device` could access the memory of `peer` directly.
[[nodiscard]] bool can_access_peer(int device, int peer);

/// Whether the last of `enable_peer` and `disable_peer` for the two was `enable_peer`. CUDA cannot
/// be asked, so what other libraries do is not known here.
[[nodiscard]] bool has_access(int device, int peer);

/// Lets `device` access the memory of `peer` directly, in the whole process. It has no effect if
/// that is allowed already.
void enable_peer(int device, int peer);

/// Ends that, also if another library has allowed it; copies between the two then go through the
/// host. It has no effect if it is not allowed.
void disable_peer(int device, int peer);

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

/// Makes a context current, and relaxes captures, until it is destroyed.
class context_guard {
 public:
  explicit context_guard(CUcontext wanted);
  ~context_guard();
  context_guard(context_guard const&) = delete;
  context_guard& operator=(context_guard const&) = delete;
  context_guard(context_guard&&) = delete;
  context_guard& operator=(context_guard&&) = delete;

 private:
  capture_relaxation relaxed_;
  CUcontext previous_{};
  bool changed_{false};
};

/// The device's primary context, which is created if necessary.
[[nodiscard]] CUcontext primary_context(int device);

/// Makes a device's primary context current, relaxes captures, and restores the previous context
/// exactly, so that a framework in the same thread sees no change.
class device_guard {
 public:
  explicit device_guard(int device);
  ~device_guard();
  device_guard(device_guard const&) = delete;
  device_guard& operator=(device_guard const&) = delete;
  device_guard(device_guard&&) = delete;
  device_guard& operator=(device_guard&&) = delete;

 private:
  capture_relaxation relaxed_;
  CUcontext previous_{};
};

/// Calls `release` with the device current. If the device cannot be made current, `release` is
/// called anyway, because there is no second attempt, and the error is thrown afterwards.
template <typename Release>
void release_on(int device, Release const& release) {
  std::optional<device_guard> guard;
  std::exception_ptr fault;
  try {
    guard.emplace(device);
  } catch (...) { fault = std::current_exception(); }
  release();
  if (fault) { std::rethrow_exception(fault); }
}

}  // namespace pyxfer
