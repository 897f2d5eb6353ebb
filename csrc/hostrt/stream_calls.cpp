#include "stream_calls.hpp"

#include "capture.hpp"
#include "event.hpp"
#include "loss.hpp"
#include "stream_registry.hpp"
#include "synchronize.hpp"
#include "thread_state.hpp"

namespace pyxfer::hostrt {

cudaError_t find_stream(cudaStream_t handle, std::shared_ptr<stream>& found) {
  auto const of_context =
      handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
  if (of_context && !this_thread().has_context) return cudaErrorDeviceUninitialized;
  if (of_context && context_destroyed(this_thread().device)) return cudaErrorContextIsDestroyed;
  found = streams().find(handle);
  auto const usable = found && !context_destroyed(found->device());
  return usable ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t find_event(CUevent handle, std::shared_ptr<event>& found) {
  found = events().find(handle);
  if (!found) return cudaErrorInvalidResourceHandle;
  return context_destroyed(found->device()) ? cudaErrorContextIsDestroyed : cudaSuccess;
}

cudaError_t find_for_work(cudaStream_t handle, std::shared_ptr<stream>& found) {
  auto const code = find_stream(handle, found);
  return code == cudaSuccess ? captures().admit_work(*found) : code;
}

cudaError_t synchronize_stream(cudaStream_t stream) {
  std::shared_ptr<hostrt::stream> on;
  if (auto const code = find_stream(stream, on); code != cudaSuccess) return code;
  if (auto const code = captures().admit_query(*on); code != cudaSuccess) return code;
  return synchronize(streams().pending(on));
}

cudaError_t synchronize_device(int device) {
  auto const code = captures().admit_device_query(device);
  return code == cudaSuccess ? synchronize(streams().pending_on_device(device)) : code;
}

cudaError_t query_stream(cudaStream_t stream) {
  std::shared_ptr<hostrt::stream> on;
  if (auto const code = find_stream(stream, on); code != cudaSuccess) return code;
  if (auto const code = captures().admit_query(*on); code != cudaSuccess) return code;
  return query(streams().pending(on));
}

cudaError_t make_stream_wait(cudaStream_t stream, cudaEvent_t event, unsigned int flags,
                             ordered_delay const& delay) {
  std::shared_ptr<hostrt::event> awaited;
  if (auto const code = find_event(event, awaited); code != cudaSuccess) return code;
  std::shared_ptr<hostrt::stream> on;
  if (auto const code = find_for_work(stream, on); code != cudaSuccess) return code;
  if ((flags & ~static_cast<unsigned int>(cudaEventWaitExternal)) != 0) {
    return cudaErrorInvalidValue;
  }
  auto const record = awaited->latest();
  if (!record) return cudaSuccess;
  if (auto const code = captures().admit_wait(on, record->captured_by); code != cudaSuccess) {
    return code;
  }
  if (record->at.reached() && delay.none()) return cudaSuccess;
  streams().enqueue(on, [delay](work_start const& start) { return delay.serve(start.ready); },
                    {record->at});
  return cudaSuccess;
}

}  // namespace pyxfer::hostrt
