#pragma once

#include <cuda_runtime_api.h>

#include "delay.hpp"

namespace pyxfer::hostrt {

// What the runtime and the driver call alike.

[[nodiscard]] cudaError_t synchronize_stream(cudaStream_t stream);
[[nodiscard]] cudaError_t query_stream(cudaStream_t stream);

/// Makes the stream wait for the latest recording of the event at this time, if there is one.
[[nodiscard]] cudaError_t make_stream_wait(cudaStream_t stream, cudaEvent_t event,
                                           unsigned int flags, ordered_delay const& delay);

}  // namespace pyxfer::hostrt
