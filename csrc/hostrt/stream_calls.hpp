#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "delay.hpp"
#include "event.hpp"
#include "stream.hpp"

namespace pyxfer::hostrt {

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

}  // namespace pyxfer::hostrt
