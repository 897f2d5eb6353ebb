#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "capture.hpp"
#include "driver.hpp"
#include "entry.hpp"
#include "handles.hpp"
#include "injection.hpp"
#include "loss.hpp"
#include "stream_calls.hpp"
#include "stream_registry.hpp"

using namespace pyxfer::hostrt;

namespace {

/// A runtime call that an old driver lacks is missing under its driver name too.
bool is_missing(std::string const& symbol) {
  auto const of_runtime = "cuda" + symbol.substr(std::min<std::size_t>(2, symbol.size()));
  return injected().missing(symbol) || injected().missing(of_runtime);
}

/// Calls the caller's function, with CUDA calls forbidden meanwhile.
void call_host_function(cudaHostFn_t function, void* argument) {
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
  return runtime_call<index_of("cudaStreamDestroy")>(
      [&] { return streams().destroy(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle; });
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
    auto const on = streams().find(stream);
    return on ? captures().begin(on, mode) : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  return runtime_call<index_of("cudaStreamEndCapture")>([&] {
    if (pGraph == nullptr) return cudaErrorInvalidValue;
    auto const on = streams().find(stream);
    auto const code = on ? captures().end(*on) : cudaErrorInvalidResourceHandle;
    *pGraph = code == cudaSuccess ? reinterpret_cast<cudaGraph_t>(next_handle()) : nullptr;
    return code;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* pCaptureStatus) {
  return runtime_call<index_of("cudaStreamIsCapturing")>([&] {
    if (pCaptureStatus == nullptr) return cudaErrorInvalidValue;
    auto const on = streams().find(stream);
    return on ? captures().status(*on, *pCaptureStatus) : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  return runtime_call<index_of("cudaLaunchHostFunc")>([&](ordered_delay const& delay) {
    if (fn == nullptr) return cudaErrorInvalidValue;
    std::shared_ptr<pyxfer::hostrt::stream> on;
    if (auto const code = find_for_work(stream, on); code != cudaSuccess) return code;
    streams().enqueue(on, [=](std::uint64_t epoch) {
      delay.serve();
      if (is_current(epoch)) call_host_function(fn, userData);
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
