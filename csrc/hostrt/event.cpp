#include "event.hpp"

#include <utility>

#include "entry.hpp"
#include "stream.hpp"
#include "stream_registry.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {

CUevent event_registry::create(int device, bool timed) {
  auto const handle = next_handle();
  std::scoped_lock const lock{mutex_};
  events_.emplace(handle, std::make_shared<event>(event{device, timed}));
  return reinterpret_cast<CUevent>(handle);
}

bool event_registry::destroy(CUevent handle) {
  std::scoped_lock const lock{mutex_};
  return events_.erase(reinterpret_cast<std::uintptr_t>(handle)) == 1;
}

std::shared_ptr<event> event_registry::find(CUevent handle) const {
  std::scoped_lock const lock{mutex_};
  auto const found = events_.find(reinterpret_cast<std::uintptr_t>(handle));
  return found == events_.end() ? nullptr : found->second;
}

std::vector<std::uintptr_t> event_registry::handles() const {
  std::scoped_lock const lock{mutex_};
  std::vector<std::uintptr_t> values;
  values.reserve(events_.size());
  for (auto const& [handle, live] : events_) values.push_back(handle);
  return values;
}

event_registry& events() {
  static auto& the_events = *new event_registry;
  return the_events;
}

}  // namespace pyxfer::hostrt

namespace pyxfer::hostrt::driver {
namespace {

constexpr unsigned int known_flags = unsigned{CU_EVENT_BLOCKING_SYNC} |
                                     unsigned{CU_EVENT_DISABLE_TIMING} |
                                     unsigned{CU_EVENT_INTERPROCESS};

bool are_event_flags(unsigned int flags) {
  if ((flags & ~known_flags) != 0) return false;
  // An event that is shared between processes cannot be timed, and must be created so.
  return (flags & CU_EVENT_INTERPROCESS) == 0 || (flags & CU_EVENT_DISABLE_TIMING) != 0;
}

/// The places in streams that complete an event when reached; none if it was never recorded.
cudaError_t find_places(CUevent handle, std::vector<stream_point>& places) {
  std::shared_ptr<event> found;
  if (auto const code = find_event(handle, found); code != cudaSuccess) return code;
  auto const latest = found->latest_now();
  if (!latest) return cudaSuccess;
  places.push_back(latest->at);
  return captures().admit_event_query(latest->captured_by);
}

cudaError_t record(event& recorded, std::shared_ptr<stream> const& on, ordered_delay const& delay) {
  auto made = std::make_shared<recording>();
  made->captured_by = captures().of(*on);
  if (delay.none() && !hangs(on->device()) && streams().idle(*on)) {
    // A device passes an event on an idle stream at once. Here the worker would have to wake first.
    made->at = stream_point::passed_now(on);
  } else {
    made->at = streams().enqueue(
        on, [delay](work_start const& start) { return delay.serve(start.ready); });
  }
  std::atomic_store(&recorded.latest, std::shared_ptr<recording const>{std::move(made)});
  return cudaSuccess;
}

cudaError_t elapsed(float& milliseconds, event const& start, event const& end) {
  auto const from = start.latest_now();
  auto const to = end.latest_now();
  if (!from || !to || !start.timed || !end.timed) return cudaErrorInvalidResourceHandle;
  for (auto const& recorded : {from, to}) {
    auto const code = captures().admit_event_query(recorded->captured_by);
    if (code != cudaSuccess) return code;
  }
  if (!from->at.reached() || !to->at.reached()) return cudaErrorNotReady;
  using float_milliseconds = std::chrono::duration<float, std::milli>;
  milliseconds = float_milliseconds{*to->at.ended - *from->at.ended}.count();
  return cudaSuccess;
}

}  // namespace

CUresult event_create(CUevent* made, unsigned int flags) {
  return driver_call<index_of("cuEventCreate")>([&] {
    if (made == nullptr || !are_event_flags(flags)) return cudaErrorInvalidValue;
    if (!this_thread().has_context) return cudaErrorDeviceUninitialized;
    *made = events().create(this_thread().device, (flags & CU_EVENT_DISABLE_TIMING) == 0);
    return cudaSuccess;
  });
}

CUresult event_destroy(CUevent handle) {
  return driver_call<index_of("cuEventDestroy")>([&] {
    std::shared_ptr<event> found;
    auto const code = find_event(handle, found);
    (void)events().destroy(handle);
    return code;
  });
}

CUresult event_record(CUevent handle, CUstream stream) {
  return driver_call<index_of("cuEventRecord")>([&](ordered_delay const& delay) {
    std::shared_ptr<event> recorded;
    if (auto const code = find_event(handle, recorded); code != cudaSuccess) return code;
    std::shared_ptr<hostrt::stream> on;
    if (auto const code = find_for_work(stream, on); code != cudaSuccess) return code;
    if (recorded->device != on->device()) return cudaErrorInvalidResourceHandle;
    return record(*recorded, on, delay);
  });
}

CUresult event_query(CUevent handle) {
  return driver_call<index_of("cuEventQuery")>([&] {
    std::vector<stream_point> places;
    auto const code = find_places(handle, places);
    return code == cudaSuccess ? query(places) : code;
  });
}

CUresult event_synchronize(CUevent handle) {
  return driver_call<index_of("cuEventSynchronize")>([&] {
    std::vector<stream_point> places;
    auto const code = find_places(handle, places);
    return code == cudaSuccess ? synchronize(places) : code;
  });
}

CUresult event_elapsed_time(float* milliseconds, CUevent start, CUevent end) {
  return driver_call<index_of("cuEventElapsedTime")>([&] {
    if (milliseconds == nullptr) return cudaErrorInvalidValue;
    std::shared_ptr<event> from;
    if (auto const code = find_event(start, from); code != cudaSuccess) return code;
    std::shared_ptr<event> to;
    if (auto const code = find_event(end, to); code != cudaSuccess) return code;
    return elapsed(*milliseconds, *from, *to);
  });
}

}  // namespace pyxfer::hostrt::driver
