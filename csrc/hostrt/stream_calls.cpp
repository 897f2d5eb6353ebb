#include "stream_calls.hpp"

#include "capture.hpp"
#include "event.hpp"
#include "stream_registry.hpp"
#include "synchronize.hpp"

namespace pyxfer::hostrt {

cudaError_t find_for_work(cudaStream_t handle, std::shared_ptr<stream>& found) {
  found = streams().find(handle);
  return found ? captures().admit_work(*found) : cudaErrorInvalidResourceHandle;
}

cudaError_t synchronize_stream(cudaStream_t stream) {
  auto const on = streams().find(stream);
  if (!on) return cudaErrorInvalidResourceHandle;
  if (auto const code = captures().admit_query(*on); code != cudaSuccess) return code;
  return synchronize(streams().pending(on));
}

cudaError_t synchronize_device(int device) {
  auto const code = captures().admit_device_query(device);
  return code == cudaSuccess ? synchronize(streams().pending_on_device(device)) : code;
}

cudaError_t query_stream(cudaStream_t stream) {
  auto const on = streams().find(stream);
  if (!on) return cudaErrorInvalidResourceHandle;
  if (auto const code = captures().admit_query(*on); code != cudaSuccess) return code;
  return query(streams().pending(on));
}

cudaError_t make_stream_wait(cudaStream_t stream, cudaEvent_t event, unsigned int flags,
                             ordered_delay const& delay) {
  auto const awaited = events().find(event);
  std::shared_ptr<hostrt::stream> on;
  if (auto const code = find_for_work(stream, on); code != cudaSuccess) return code;
  if (!awaited) return cudaErrorInvalidResourceHandle;
  if ((flags & ~static_cast<unsigned int>(cudaEventWaitExternal)) != 0) {
    return cudaErrorInvalidValue;
  }
  auto const record = awaited->latest();
  if (!record) return cudaSuccess;
  if (auto const code = captures().admit_wait(on, record->captured_by); code != cudaSuccess) {
    return code;
  }
  streams().enqueue(on, [delay](std::uint64_t /*epoch*/) { delay.serve(); }, {record->at});
  return cudaSuccess;
}

}  // namespace pyxfer::hostrt
