#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "stream.hpp"

namespace pyxfer::hostrt {

/// A capture under way or ended. Its streams execute nothing, and no graph is made: the work that
/// they are given is dropped.
struct capture {
  /// The first is the one that it was begun on; a wait for one of its events adds others.
  std::vector<std::shared_ptr<stream>> streams;
  std::thread::id thread;
  cudaStreamCaptureMode mode;
  bool valid = true;
};

/// The captures under way, and which calls they refuse. A refused call invalidates the captures
/// that refuse it.
class capture_registry {
 public:
  [[nodiscard]] cudaError_t begin(std::shared_ptr<stream> const& on, cudaStreamCaptureMode mode);
  [[nodiscard]] cudaError_t end(stream const& on);
  void forget_all();

  /// Null where the stream is not being captured.
  [[nodiscard]] std::shared_ptr<capture> of(stream const& on) const;
  [[nodiscard]] cudaError_t status(stream const& on, cudaStreamCaptureStatus& status) const;

  /// Whether this thread may make a call that captures forbid, such as an allocation.
  [[nodiscard]] cudaError_t admit_unsafe();
  [[nodiscard]] cudaError_t admit_work(stream const& on);
  /// Whether a stream, a device or an event (by what captured its record) may be queried or
  /// synchronized with.
  [[nodiscard]] cudaError_t admit_query(stream const& on);
  [[nodiscard]] cudaError_t admit_device_query(int device);
  [[nodiscard]] cudaError_t admit_event_query(std::shared_ptr<capture> const& captured_by);
  /// Whether a stream may wait for such an event. A captured one draws the stream into its capture.
  [[nodiscard]] cudaError_t admit_wait(std::shared_ptr<stream> const& waiting,
                                       std::shared_ptr<capture> const& captured_by);

 private:
  using captures_under_way = std::vector<std::shared_ptr<capture>>;

  [[nodiscard]] captures_under_way::const_iterator find(stream const& on) const;

  /// Answers `code` where `refuses` holds for a capture under way.
  template <typename Refuses>
  [[nodiscard]] cudaError_t admit(cudaError_t code, Refuses const& refuses);

  mutable std::mutex mutex_;
  captures_under_way under_way_;
  /// Without any, a call costs one load.
  std::atomic<bool> any_{false};
};

[[nodiscard]] capture_registry& captures();

}  // namespace pyxfer::hostrt
