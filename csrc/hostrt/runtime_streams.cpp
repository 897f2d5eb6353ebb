#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>
#include <string>

#include "capture.hpp"
#include "device.hpp"
#include "entry.hpp"
#include "injection.hpp"
#include "stream.hpp"
#include "stream_registry.hpp"

using namespace pyxfer::hostrt;

namespace {

/// Calls the caller's function, in which CUDA calls are forbidden. The driver calls one such
/// function at a time over all streams (observed on an H100 with driver 580).
void call_host_function(cudaHostFn_t function, void* argument, loss_epoch const& epoch) {
  static auto& one_at_a_time = *new std::mutex;
  std::scoped_lock const lock{one_at_a_time};
  if (!is_current(epoch)) return;
  this_thread().in_host_function = true;
  function(argument);
  this_thread().in_host_function = false;
}

}  // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
  return runtime_call<index_of("cudaStreamCreateWithFlags")>([&] {
    auto const known = flags == cudaStreamDefault || flags == cudaStreamNonBlocking;
    if (pStream == nullptr || !known) return cudaErrorInvalidValue;
    *pStream = streams().create(this_thread().device, flags == cudaStreamDefault);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return runtime_call<index_of("cudaStreamDestroy")>([&] {
    std::shared_ptr<pyxfer::hostrt::stream> on;
    auto const code = find_stream(stream, on);
    return streams().destroy(stream) ? code : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return runtime_call<index_of("cudaStreamSynchronize")>(
      [&] { return synchronize_stream(stream); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return runtime_call<index_of("cudaStreamQuery")>([&] { return query_stream(stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return runtime_call<index_of("cudaStreamWaitEvent")>(
      [&](ordered_delay const& delay) { return make_stream_wait(stream, event, flags, delay); });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return runtime_call<index_of("cudaStreamBeginCapture")>([&] {
    std::shared_ptr<pyxfer::hostrt::stream> on;
    auto const code = find_stream(stream, on);
    return code == cudaSuccess ? captures().begin(on, mode) : code;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  return runtime_call<index_of("cudaStreamEndCapture")>([&] {
    if (pGraph == nullptr) return cudaErrorInvalidValue;
    std::shared_ptr<pyxfer::hostrt::stream> on;
    auto code = find_stream(stream, on);
    if (code == cudaSuccess) code = captures().end(*on);
    *pGraph = code == cudaSuccess ? reinterpret_cast<cudaGraph_t>(next_handle()) : nullptr;
    return code;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* pCaptureStatus) {
  return runtime_call<index_of("cudaStreamIsCapturing")>([&] {
    if (pCaptureStatus == nullptr) return cudaErrorInvalidValue;
    std::shared_ptr<pyxfer::hostrt::stream> on;
    auto const code = find_stream(stream, on);
    return code == cudaSuccess ? captures().status(*on, *pCaptureStatus) : code;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  return runtime_call<index_of("cudaLaunchHostFunc")>([&](ordered_delay const& delay) {
    if (fn == nullptr) return cudaErrorInvalidValue;
    std::shared_ptr<pyxfer::hostrt::stream> on;
    if (auto const code = find_for_work(stream, on); code != cudaSuccess) return code;
    streams().enqueue(on, [=](work_start const& start) {
      delay.serve(start.ready);
      call_host_function(fn, userData, start.epoch);
      return steady::now();
    });
    return cudaSuccess;
  });
}

cudaError_t cudaGetDriverEntryPointByVersion(char const* symbol, void** funcPtr,
                                             unsigned int /*cudaVersion*/,
                                             unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* driverStatus) {
  return runtime_call<index_of("cudaGetDriverEntryPointByVersion")>([&] {
    if (symbol == nullptr || funcPtr == nullptr) return cudaErrorInvalidValue;
    *funcPtr = is_missing(symbol) ? nullptr : driver_function(symbol);
    auto const found = *funcPtr != nullptr;
    if (driverStatus == nullptr) return found ? cudaSuccess : cudaErrorSymbolNotFound;
    *driverStatus = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
  });
}
