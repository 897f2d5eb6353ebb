#include "cuda/event.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"

namespace pyxfer {

event::event(int device, event_use use) : device_{device} {
  auto const flags = use == event_use::clock ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  device_guard const guard{device_};
  CUevent made{};
  PYXFER_TRY(driver().cuEventCreate(&made, flags));
  handle_ = made;
}

event::event(event&& other) noexcept
    : device_{other.device_}, handle_{other.handle_.exchange(nullptr)} {}

event::~event() {
  release_noexcept([this] { close(); });
}

void event::record(stream_view on) { PYXFER_TRY(driver().cuEventRecord(handle_, on.handle())); }

bool event::passed() const {
  auto const status = driver().cuEventQuery(handle_);
  if (status == CUDA_ERROR_NOT_READY) { return false; }
  PYXFER_TRY_STATUS("cuEventQuery", status);
  return true;
}

double event::seconds_since(event const& start) const {
  float milliseconds = 0.0F;
  PYXFER_TRY(driver().cuEventElapsedTime(&milliseconds, start.handle_, handle_));
  return static_cast<double>(milliseconds) / 1e3;
}

void event::hold(stream_view waiting) const {
  PYXFER_TRY(driver().cuStreamWaitEvent(waiting.handle(), handle_, 0));
}

void event::close() {
  auto* const handle = handle_.exchange(nullptr);
  if (handle == nullptr || !same_process()) { return; }
  release_on(device_, [&] { PYXFER_TRY(driver().cuEventDestroy(handle)); });
}

}  // namespace pyxfer
