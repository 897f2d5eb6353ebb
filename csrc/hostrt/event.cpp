#include "event.hpp"

#include <utility>

#include "handles.hpp"

namespace pyxfer::hostrt {

std::shared_ptr<recording const> event::latest() const {
  std::scoped_lock const lock{mutex_};
  return latest_;
}

void event::set_latest(std::shared_ptr<recording const> record) {
  std::scoped_lock const lock{mutex_};
  latest_ = std::move(record);
}

CUevent event_registry::create(int device, bool timed) {
  auto const handle = next_handle();
  std::scoped_lock const lock{mutex_};
  events_.emplace(handle, std::make_shared<event>(device, timed));
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
  for (auto const& [handle, each] : events_) values.push_back(handle);
  return values;
}

event_registry& events() {
  static auto& the_events = *new event_registry;
  return the_events;
}

}  // namespace pyxfer::hostrt
