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

/// All streams, the default ones too, and the order between the legacy one and the blocking ones.
class stream_registry {
 public:
  [[nodiscard]] cudaStream_t create(int device, bool blocking);

  /// False when the handle is none of a created stream. Queued work is still done.
  [[nodiscard]] bool destroy(cudaStream_t handle);

  /// The stream of a handle, on this thread's device for the default streams; null when unknown.
  [[nodiscard]] std::shared_ptr<stream> find(cudaStream_t handle);

  [[nodiscard]] std::shared_ptr<stream> legacy(int device);

  /// Queues `work`, behind what the legacy stream's rules demand and behind all of `after`.
  /// Work of a captured stream is dropped.
  stream_point enqueue(std::shared_ptr<stream> const& on, stream_work work,
                       std::vector<stream_point> after = {});

  /// Whether nothing is queued that work on this stream would have to wait for.
  [[nodiscard]] bool idle(stream& on) const;

  /// The places that a synchronisation with `on` has to wait for.
  [[nodiscard]] std::vector<stream_point> pending(std::shared_ptr<stream> const& on);

  [[nodiscard]] std::vector<stream_point> pending_on_device(int device);
  [[nodiscard]] std::vector<stream_point> pending_anywhere();

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
  /// Every stream with a worker: the created, the default and the destroyed that still work.
  std::vector<std::shared_ptr<stream>> running_;
};

[[nodiscard]] stream_registry& streams();

// What the runtime and the driver call alike.

/// The stream of a handle, or the error of a call that is given it.
[[nodiscard]] cudaError_t find_stream(cudaStream_t handle, std::shared_ptr<stream>& found);

/// The same for an event.
[[nodiscard]] cudaError_t find_event(CUevent handle, std::shared_ptr<event>& found);

/// The stream that work is to be queued on, or the error of a call that tries.
[[nodiscard]] cudaError_t find_for_work(cudaStream_t handle, std::shared_ptr<stream>& found);

[[nodiscard]] cudaError_t synchronize_stream(cudaStream_t stream);
[[nodiscard]] cudaError_t synchronize_device(int device);
[[nodiscard]] cudaError_t query_stream(cudaStream_t stream);

/// Makes the stream wait for the latest recording of the event at this time, if there is one.
[[nodiscard]] cudaError_t make_stream_wait(cudaStream_t stream, cudaEvent_t event,
                                           unsigned int flags, ordered_delay const& delay);

/// Waits for every point. With the device lost it returns at once with that code, when nothing
/// touches a caller's memory any more.
[[nodiscard]] cudaError_t synchronize(std::vector<stream_point> const& points);

/// Success or not ready, without waiting.
[[nodiscard]] cudaError_t query(std::vector<stream_point> const& points);

}  // namespace pyxfer::hostrt
