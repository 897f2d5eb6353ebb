#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "stream.hpp"

namespace pyxfer::hostrt {

/// A capture that is under way or has ended. Its streams execute nothing, and no graph is made:
/// work that is queued on them is dropped.
struct capture {
  /// The first is the stream that the capture was begun on. A stream that waits for one of its
  /// events is added.
  std::vector<std::shared_ptr<stream>> streams;
  std::thread::id thread;
  cudaStreamCaptureMode mode;
  bool valid = true;
};

/// The captures that are under way. They refuse some calls; a refused call invalidates the captures
/// that refuse it.
class capture_registry {
 public:
  [[nodiscard]] cudaError_t begin(std::shared_ptr<stream> const& on, cudaStreamCaptureMode mode);
  [[nodiscard]] cudaError_t end(stream const& on);
  void forget_all();

  /// Null if the stream is not being captured.
  [[nodiscard]] std::shared_ptr<capture> of(stream const& on) const;
  [[nodiscard]] cudaError_t status(stream const& on, cudaStreamCaptureStatus& status) const;

  /// Whether this thread may make a call that captures forbid, such as an allocation.
  [[nodiscard]] cudaError_t admit_unsafe();
  [[nodiscard]] cudaError_t admit_work(stream const& on);
  /// Whether a stream, a device or an event may be queried or synchronized with. An event is given
  /// by the capture of its latest record.
  [[nodiscard]] cudaError_t admit_query(stream const& on);
  [[nodiscard]] cudaError_t admit_device_query(int device);
  [[nodiscard]] cudaError_t admit_event_query(std::shared_ptr<capture> const& captured_by);
  /// Whether a stream may wait for such an event. The event's capture then includes the stream.
  [[nodiscard]] cudaError_t admit_wait(std::shared_ptr<stream> const& waiting,
                                       std::shared_ptr<capture> const& captured_by);

 private:
  using captures_under_way = std::vector<std::shared_ptr<capture>>;

  [[nodiscard]] captures_under_way::const_iterator find(stream const& on) const;

  /// Returns `code` if `refuses` holds for a capture that is under way, and invalidates that
  /// capture.
  template <typename Refuses>
  [[nodiscard]] cudaError_t admit(cudaError_t code, Refuses const& refuses);

  mutable std::mutex mutex_;
  captures_under_way under_way_;
  /// Whether a capture is under way. Calls outside of captures cost only this load.
  std::atomic<bool> any_{false};
};

[[nodiscard]] capture_registry& captures();

}  // namespace pyxfer::hostrt
