#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "capture.hpp"
#include "stream.hpp"

namespace pyxfer::hostrt {

/// One recording of an event: its place in a stream, and the stream's clock there.
struct recording {
  stream_point at;
  /// Null if the stream was not being captured.
  std::shared_ptr<capture> captured_by;
};

/// An event holds its latest recording. Earlier ones exist as long as their streams need them.
struct event {
  int device;
  bool timed;
  /// Null before the first. It is read and written with the atomic functions of std::shared_ptr.
  std::shared_ptr<recording const> latest = nullptr;

  [[nodiscard]] std::shared_ptr<recording const> latest_now() const {
    return std::atomic_load(&latest);
  }
};

/// The events by their handles.
class event_registry {
 public:
  [[nodiscard]] CUevent create(int device, bool timed);
  [[nodiscard]] bool destroy(CUevent handle);
  /// Null if the handle is not that of an existing event.
  [[nodiscard]] std::shared_ptr<event> find(CUevent handle) const;
  [[nodiscard]] std::vector<std::uintptr_t> handles() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, std::shared_ptr<event>> events_;
};

[[nodiscard]] event_registry& events();

}  // namespace pyxfer::hostrt

namespace pyxfer::hostrt::driver {

CUresult event_create(CUevent* made, unsigned int flags);
CUresult event_destroy(CUevent handle);
CUresult event_record(CUevent handle, CUstream stream);
CUresult event_query(CUevent handle);
CUresult event_synchronize(CUevent handle);
CUresult event_elapsed_time(float* milliseconds, CUevent start, CUevent end);

}  // namespace pyxfer::hostrt::driver
