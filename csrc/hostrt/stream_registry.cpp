#include "stream_registry.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>

#include "capture.hpp"
#include "device.hpp"
#include "entry.hpp"
#include "event.hpp"
#include "stream.hpp"

namespace pyxfer::hostrt {

// --- the registry --------------------------------------------------------------------------------

namespace {

/// A worker must not run the program's signal handlers, and a thread inherits its creator's mask.
class signals_blocked {
 public:
  signals_blocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~signals_blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  signals_blocked(signals_blocked const&) = delete;
  signals_blocked& operator=(signals_blocked const&) = delete;
  signals_blocked(signals_blocked&&) = delete;
  signals_blocked& operator=(signals_blocked&&) = delete;

 private:
  sigset_t before_{};
};

/// The per-thread default streams of one thread, by device.
using own_streams = std::map<int, std::shared_ptr<stream>>;

struct retiring {
  pid_t process = getpid();

  void operator()(own_streams* own) const {
    // A forked child has no workers, and one of them may have held a lock.
    if (process != getpid()) return;
    for (auto const& [device, each] : *own) each->retire();
    delete own;
  }
};

own_streams& this_threads_streams() {
  thread_local std::unique_ptr<own_streams, retiring> own{new own_streams};
  return *own;
}

// The id that the real runtime gives the first stream of a process.
constexpr std::uint32_t first_id = 13;

std::uint32_t next_id() noexcept {
  static std::atomic<std::uint32_t> next{first_id};
  return next++;
}

void add_if_pending(stream_point point, std::vector<stream_point>& points) {
  if (!point.reached()) points.push_back(std::move(point));
}

}  // namespace

std::shared_ptr<stream> stream_registry::start(int device, bool blocking, std::uint32_t id) {
  auto started = std::make_shared<stream>(device, blocking, id);
  running_.push_back(started);
  try {
    signals_blocked const blocked;
    // Detached, so that a worker that is stuck in a gate does not delay the exit of the process.
    std::thread{[this, started] {
      started->run();
      forget(started.get());
    }}.detach();
  } catch (...) {
    running_.pop_back();
    throw;
  }
  return started;
}

cudaStream_t stream_registry::create(int device, bool blocking) {
  std::scoped_lock const lock{mutex_};
  auto const handle = next_handle();
  created_.emplace(handle, start(device, blocking, next_id()));
  return reinterpret_cast<cudaStream_t>(handle);
}

bool stream_registry::destroy(cudaStream_t handle) {
  std::scoped_lock const lock{mutex_};
  auto const found = created_.find(reinterpret_cast<std::uintptr_t>(handle));
  if (found == created_.end()) return false;
  found->second->retire();
  created_.erase(found);
  return true;
}

std::shared_ptr<stream> stream_registry::find(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return legacy(this_thread().device);
  if (handle == cudaStreamPerThread) return per_thread(this_thread().device);
  std::scoped_lock const lock{mutex_};
  auto const found = created_.find(reinterpret_cast<std::uintptr_t>(handle));
  return found == created_.end() ? nullptr : found->second;
}

std::shared_ptr<stream> stream_registry::legacy(int device) {
  std::scoped_lock const lock{mutex_};
  auto& found = legacy_[device];
  if (!found) found = start(device, true, stream::legacy_id);
  return found;
}

std::shared_ptr<stream> stream_registry::per_thread(int device) {
  auto& found = this_threads_streams()[device];
  if (!found) {
    std::scoped_lock const lock{mutex_};
    found = start(device, true, next_id());
  }
  return found;
}

stream_point stream_registry::enqueue(std::shared_ptr<stream> const& on, stream_work work,
                                      std::vector<stream_point> after, engine by) {
  if (captures().of(*on)) return stream_point::passed_now(on);
  on->await_room();
  if (on->blocking()) {
    std::scoped_lock const lock{mutex_};
    add_implicit(*on, after);
    return on->enqueue(std::move(work), std::move(after), by);
  }
  return on->enqueue(std::move(work), std::move(after), by);
}

bool stream_registry::idle(stream& on) const {
  if (!on.idle() || !on.blocking()) return on.idle();
  std::vector<stream_point> others;
  std::scoped_lock const lock{mutex_};
  add_implicit(on, others);
  return others.empty();
}

void stream_registry::add_implicit(stream& on, std::vector<stream_point>& after) const {
  auto const default_stream = legacy_.find(on.device());
  if (default_stream == legacy_.end()) return;
  if (default_stream->second.get() != &on) {
    add_if_pending(default_stream->second->last_point(), after);
    return;
  }
  for (auto const& running : running_) {
    auto const ordered =
        running->blocking() && running->device() == on.device() && running.get() != &on;
    if (ordered) add_if_pending(running->last_point(), after);
  }
}

std::vector<stream_point> stream_registry::pending(std::shared_ptr<stream> const& on) {
  std::vector<stream_point> points;
  add_if_pending(on->last_point(), points);
  std::scoped_lock const lock{mutex_};
  auto const default_stream = legacy_.find(on->device());
  if (default_stream != legacy_.end() && default_stream->second == on) add_implicit(*on, points);
  return points;
}

std::vector<stream_point> stream_registry::pending_on_device(int device) {
  std::vector<stream_point> points;
  std::scoped_lock const lock{mutex_};
  for (auto const& running : running_) {
    if (running->device() == device) add_if_pending(running->last_point(), points);
  }
  return points;
}

void stream_registry::wake_all() {
  std::scoped_lock const lock{mutex_};
  for (auto const& running : running_) running->wake();
}

std::vector<std::uintptr_t> stream_registry::handles() const {
  std::scoped_lock const lock{mutex_};
  std::vector<std::uintptr_t> values;
  values.reserve(created_.size());
  for (auto const& [handle, created] : created_) values.push_back(handle);
  return values;
}

void stream_registry::forget(stream const* ended) {
  std::scoped_lock const lock{mutex_};
  auto const same = [&](auto const& running) { return running.get() == ended; };
  running_.erase(std::remove_if(running_.begin(), running_.end(), same), running_.end());
}

stream_registry& streams() {
  // Never destroyed, because workers may still run during static destruction.
  static auto& the_streams = *new stream_registry;
  return the_streams;
}

// --- calls on streams, as the runtime and the driver answer them ---------------------------------

cudaError_t synchronize(std::vector<stream_point> const& points) {
  auto code = cudaSuccess;
  for (auto const& point : points) {
    point.wait();
    auto const device = point.on->device();
    if (!device_lost(device)) continue;
    await_last_touch(device);
    if (code == cudaSuccess) code = loss_code(device);
  }
  return code;
}

cudaError_t query(std::vector<stream_point> const& points) {
  auto const reached = std::all_of(points.begin(), points.end(),
                                   [](stream_point const& point) { return point.reached(); });
  return reached ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t find_stream(cudaStream_t handle, std::shared_ptr<stream>& found) {
  auto const of_context =
      handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
  if (of_context && !this_thread().has_context) return cudaErrorDeviceUninitialized;
  if (of_context && context_destroyed(this_thread().device)) return cudaErrorContextIsDestroyed;
  found = streams().find(handle);
  auto const usable = found && !context_destroyed(found->device());
  return usable ? loss_code(found->device()) : cudaErrorInvalidResourceHandle;
}

cudaError_t find_event(CUevent handle, std::shared_ptr<event>& found) {
  found = events().find(handle);
  if (!found) return cudaErrorInvalidResourceHandle;
  return context_destroyed(found->device) ? cudaErrorContextIsDestroyed : loss_code(found->device);
}

cudaError_t find_for_work(cudaStream_t handle, std::shared_ptr<stream>& found) {
  auto const code = find_stream(handle, found);
  return code == cudaSuccess ? captures().admit_work(*found) : code;
}

cudaError_t find_for_query(cudaStream_t handle, std::shared_ptr<stream>& found) {
  auto const code = find_stream(handle, found);
  return code == cudaSuccess ? captures().admit_query(*found) : code;
}

cudaError_t synchronize_stream(cudaStream_t stream) {
  std::shared_ptr<hostrt::stream> on;
  auto code = find_for_query(stream, on);
  if (code == cudaSuccess) code = synchronize(streams().pending(on));
  // The work may have lost the device, and ended, since the call was admitted.
  return code == cudaSuccess ? loss_code(on->device()) : code;
}

cudaError_t synchronize_device(int device) {
  auto code = captures().admit_device_query(device);
  if (code == cudaSuccess) code = synchronize(streams().pending_on_device(device));
  return code == cudaSuccess ? loss_code(device) : code;
}

cudaError_t query_stream(cudaStream_t stream) {
  std::shared_ptr<hostrt::stream> on;
  auto code = find_for_query(stream, on);
  if (code == cudaSuccess) code = query(streams().pending(on));
  return code == cudaSuccess ? loss_code(on->device()) : code;
}

cudaError_t make_stream_wait(cudaStream_t stream, cudaEvent_t event, unsigned int flags,
                             ordered_delay const& delay) {
  std::shared_ptr<hostrt::event> awaited;
  if (auto const code = find_event(event, awaited); code != cudaSuccess) return code;
  std::shared_ptr<hostrt::stream> on;
  if (auto const code = find_for_work(stream, on); code != cudaSuccess) return code;
  if ((flags & ~static_cast<unsigned int>(cudaEventWaitExternal)) != 0) {
    return cudaErrorInvalidValue;
  }
  auto const record = awaited->latest_now();
  if (!record) return cudaSuccess;
  if (auto const code = captures().admit_wait(on, record->captured_by); code != cudaSuccess) {
    return code;
  }
  if (record->at.reached() && delay.none()) return cudaSuccess;
  streams().enqueue(on, [delay](work_start const& start) { return delay.serve(start.ready); },
                    {record->at});
  return cudaSuccess;
}

}  // namespace pyxfer::hostrt
