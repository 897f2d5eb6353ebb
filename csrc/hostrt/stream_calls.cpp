#include "stream_calls.hpp"

#include "event.hpp"
#include "stream_registry.hpp"
#include "synchronize.hpp"

namespace pyxfer::hostrt {

cudaError_t synchronize_stream(cudaStream_t stream) {
  auto const on = streams().find(stream);
  return on ? synchronize(streams().pending(on)) : cudaErrorInvalidResourceHandle;
}

cudaError_t query_stream(cudaStream_t stream) {
  auto const on = streams().find(stream);
  return on ? query(streams().pending(on)) : cudaErrorInvalidResourceHandle;
}

cudaError_t make_stream_wait(cudaStream_t stream, cudaEvent_t event, unsigned int flags,
                             ordered_delay const& delay) {
  auto const on = streams().find(stream);
  auto const awaited = events().find(event);
  if (!on || !awaited) return cudaErrorInvalidResourceHandle;
  if ((flags & ~static_cast<unsigned int>(cudaEventWaitExternal)) != 0) {
    return cudaErrorInvalidValue;
  }
  if (auto const record = awaited->latest()) {
    streams().enqueue(on, [delay](std::uint64_t /*epoch*/) { delay.serve(); }, {record->at});
  }
  return cudaSuccess;
}

}  // namespace pyxfer::hostrt
