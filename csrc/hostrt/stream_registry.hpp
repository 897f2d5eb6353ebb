#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "event.hpp"
#include "stream.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {

/// All streams, including the default ones. It keeps the order between the legacy stream and the
/// blocking streams.
class stream_registry {
 public:
  [[nodiscard]] cudaStream_t create(int device, bool blocking);

  /// False if the handle is not that of a created stream. Queued work is still done.
  [[nodiscard]] bool destroy(cudaStream_t handle);

  /// The stream of a handle; null if it is unknown. A default stream is that of this thread's
  /// device.
  [[nodiscard]] std::shared_ptr<stream> find(cudaStream_t handle);

  [[nodiscard]] std::shared_ptr<stream> legacy(int device);

  /// Queues `work`, to run after the places in `after` and after the work that the rules of the
  /// legacy stream require. Work of a captured stream is dropped.
  stream_point enqueue(std::shared_ptr<stream> const& on, stream_work work,
                       std::vector<stream_point> after = {}, engine by = engine::none);

  /// Whether new work on this stream would begin at once.
  [[nodiscard]] bool idle(stream& on) const;

  /// The places that a synchronization with `on` has to wait for.
  [[nodiscard]] std::vector<stream_point> pending(std::shared_ptr<stream> const& on);

  [[nodiscard]] std::vector<stream_point> pending_on_device(int device);

  void wake_all();

  [[nodiscard]] std::vector<std::uintptr_t> handles() const;

 private:
  [[nodiscard]] std::shared_ptr<stream> start(int device, bool blocking, std::uint32_t id);
  [[nodiscard]] std::shared_ptr<stream> per_thread(int device);
  void add_implicit(stream& on, std::vector<stream_point>& after) const;
  void forget(stream const* ended);

  mutable std::mutex mutex_;
  std::map<std::uintptr_t, std::shared_ptr<stream>> created_;
  std::map<int, std::shared_ptr<stream>> legacy_;
  /// Every stream with a worker: created ones, default ones, and destroyed ones that still have
  /// work.
  std::vector<std::shared_ptr<stream>> running_;
};

[[nodiscard]] stream_registry& streams();

// Shared by the runtime calls and the driver calls.

/// Finds the stream of a handle, or returns the error of a call with this handle.
[[nodiscard]] cudaError_t find_stream(cudaStream_t handle, std::shared_ptr<stream>& found);

/// The same for an event.
[[nodiscard]] cudaError_t find_event(CUevent handle, std::shared_ptr<event>& found);

/// Finds the stream of a handle to queue work on, or returns the error of the call.
[[nodiscard]] cudaError_t find_for_work(cudaStream_t handle, std::shared_ptr<stream>& found);

/// Finds the stream of a handle to query or wait for, or returns the error of the call.
[[nodiscard]] cudaError_t find_for_query(cudaStream_t handle, std::shared_ptr<stream>& found);

[[nodiscard]] cudaError_t synchronize_stream(cudaStream_t stream);
[[nodiscard]] cudaError_t synchronize_device(int device);
[[nodiscard]] cudaError_t query_stream(cudaStream_t stream);

/// Makes the stream wait for the event's latest recording, if there is one.
[[nodiscard]] cudaError_t make_stream_wait(cudaStream_t stream, cudaEvent_t event,
                                           unsigned int flags, ordered_delay const& delay);

/// Waits for every point. If the device is lost, returns its code as soon as no work accesses a
/// caller's memory.
[[nodiscard]] cudaError_t synchronize(std::vector<stream_point> const& points);

/// Returns cudaSuccess or cudaErrorNotReady, without waiting.
[[nodiscard]] cudaError_t query(std::vector<stream_point> const& points);

}  // namespace pyxfer::hostrt
