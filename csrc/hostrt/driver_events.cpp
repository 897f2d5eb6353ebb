#include "driver_events.hpp"

#include "driver_call.hpp"
#include "event.hpp"
#include "stream_registry.hpp"
#include "synchronize.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt::driver {
namespace {

constexpr unsigned int known_flags = unsigned{CU_EVENT_BLOCKING_SYNC} |
                                     unsigned{CU_EVENT_DISABLE_TIMING} |
                                     unsigned{CU_EVENT_INTERPROCESS};

bool are_event_flags(unsigned int flags) {
  if ((flags & ~known_flags) != 0) return false;
  // An event shared between processes cannot be timed, and says so when it is made.
  return (flags & CU_EVENT_INTERPROCESS) == 0 || (flags & CU_EVENT_DISABLE_TIMING) != 0;
}

std::int64_t clock_ns() {
  auto const since_start = steady::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_start).count();
}

/// The places to reach before the event counts as done; none when it was never recorded.
std::vector<stream_point> places_of(event const& recorded) {
  auto const latest = recorded.latest();
  return latest ? std::vector{latest->at} : std::vector<stream_point>{};
}

cudaError_t record(event& recorded, std::shared_ptr<stream> const& on, ordered_delay const& delay) {
  auto made = std::make_shared<recording>();
  // A device stamps an event on an idle stream at once; the worker here may have to be woken first.
  bool const at_once = on->idle() && !on->blocking() && delay.none();
  if (at_once) made->clock_ns = clock_ns();
  made->at = streams().enqueue(on, [made, delay, at_once](std::uint64_t /*epoch*/) {
    delay.serve();
    if (!at_once) made->clock_ns = clock_ns();
  });
  // Once more when all is said: waking the worker has taken microseconds since the first stamp.
  if (at_once) made->clock_ns = clock_ns();
  recorded.set_latest(std::move(made));
  return cudaSuccess;
}

cudaError_t elapsed(float& milliseconds, event const& start, event const& end) {
  auto const from = start.latest();
  auto const to = end.latest();
  if (!from || !to || !start.timed() || !end.timed()) return cudaErrorInvalidResourceHandle;
  if (!from->at.reached() || !to->at.reached()) return cudaErrorNotReady;
  constexpr double ns_per_ms = 1e6;
  milliseconds = static_cast<float>(static_cast<double>(to->clock_ns - from->clock_ns) / ns_per_ms);
  return cudaSuccess;
}

}  // namespace

CUresult event_create(CUevent* made, unsigned int flags) {
  return driver_call<index_of("cuEventCreate")>([&] {
    if (made == nullptr || !are_event_flags(flags)) return cudaErrorInvalidValue;
    if (!this_thread().has_context) return cudaErrorDeviceUninitialized;
    *made = events().create((flags & CU_EVENT_DISABLE_TIMING) == 0);
    return cudaSuccess;
  });
}

CUresult event_destroy(CUevent handle) {
  return driver_call<index_of("cuEventDestroy")>(
      [&] { return events().destroy(handle) ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

CUresult event_record(CUevent handle, CUstream stream) {
  return driver_call<index_of("cuEventRecord")>([&](ordered_delay const& delay) {
    auto const recorded = events().find(handle);
    auto const on = streams().find(stream);
    if (!recorded || !on) return cudaErrorInvalidResourceHandle;
    return record(*recorded, on, delay);
  });
}

CUresult event_query(CUevent handle) {
  return driver_call<index_of("cuEventQuery")>([&] {
    auto const queried = events().find(handle);
    return queried ? query(places_of(*queried)) : cudaErrorInvalidResourceHandle;
  });
}

CUresult event_synchronize(CUevent handle) {
  return driver_call<index_of("cuEventSynchronize")>([&] {
    auto const awaited = events().find(handle);
    return awaited ? synchronize(places_of(*awaited)) : cudaErrorInvalidResourceHandle;
  });
}

CUresult event_elapsed_time(float* milliseconds, CUevent start, CUevent end) {
  return driver_call<index_of("cuEventElapsedTime")>([&] {
    auto const from = events().find(start);
    auto const to = events().find(end);
    if (milliseconds == nullptr) return cudaErrorInvalidValue;
    return from && to ? elapsed(*milliseconds, *from, *to) : cudaErrorInvalidResourceHandle;
  });
}

}  // namespace pyxfer::hostrt::driver
