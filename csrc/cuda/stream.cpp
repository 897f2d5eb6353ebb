#include "cuda/stream.hpp"

#include "cuda/driver.hpp"
#include "cuda/error.hpp"

namespace pyxfer {

bool is_idle(stream_view of) {
  auto const status = driver().cuStreamQuery(of.handle());
  if (status == CUDA_ERROR_NOT_READY) { return false; }
  PYXFER_TRY_STATUS("cuStreamQuery", status);
  return true;
}

stream::stream(int device)
    : owned_handle{device, [](CUstream made) { PYXFER_TRY(cudaStreamDestroy(made)); }} {
  device_guard const guard{device};
  CUstream made{};
  PYXFER_TRY(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  own(made);
}

event::event(int device, event_use use)
    : owned_handle{device, [](CUevent made) { PYXFER_TRY(driver().cuEventDestroy(made)); }} {
  auto const flags = use == event_use::clock ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  device_guard const guard{device};
  CUevent made{};
  PYXFER_TRY(driver().cuEventCreate(&made, flags));
  own(made);
}

void event::record(stream_view on) { PYXFER_TRY(driver().cuEventRecord(handle(), on.handle())); }

bool event::passed() const {
  auto const status = driver().cuEventQuery(handle());
  if (status == CUDA_ERROR_NOT_READY) { return false; }
  PYXFER_TRY_STATUS("cuEventQuery", status);
  return true;
}

double event::seconds_since(event const& start) const {
  float milliseconds = 0.0F;
  PYXFER_TRY(driver().cuEventElapsedTime(&milliseconds, start.handle(), handle()));
  return static_cast<double>(milliseconds) / 1e3;
}

void event::hold(stream_view waiting) const {
  PYXFER_TRY(driver().cuStreamWaitEvent(waiting.handle(), handle(), 0));
}

}  // namespace pyxfer
