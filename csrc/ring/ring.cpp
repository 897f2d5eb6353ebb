#include "ring/ring.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "cuda/memory.hpp"
#include "cuda/process.hpp"
#include "cuda/stream.hpp"
#include "cuda/wait.hpp"
#include "ring/staging.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

namespace pyxfer {
namespace {

ring_settings checked(ring_settings made) {
  validate(made);
  return made;
}

void require_device_memory(std::uintptr_t address, layout const& array) {
  if (address == 0 && array.bytes() != 0) {
    throw std::invalid_argument("a transfer needs the address of its memory on the device");
  }
}

/// Leaks a ring's state on purpose, because the device or a stuck thread still uses it. It stays
/// reachable, so that leak checkers do not report it. A forked child does not have the threads.
void leak(void* state) {
  if (!same_process()) { return; }
  static std::mutex lock;
  static auto& leaked = *new std::vector<void*>;
  release_noexcept([state] {
    std::scoped_lock const held{lock};
    leaked.push_back(state);
  });
}

}  // namespace

struct ring::state {
  state(int on, ring_settings const& made)
      : context{primary_context(on)},
        begins{on, event_use::order},
        small{on},
        arriving{on},
        converting{on},
        moving{std::make_unique<staging>(on, context, made, converting)},
        reads_pageable_memory{moving->reads_pageable_memory()} {}

  staged run(staging_request request, std::optional<stream_view> after,
             std::atomic<bool>& cancelled);
  [[nodiscard]] bool await_idle(double seconds) const;
  void await_work_of(stream_view on, interruption const& interrupted) const;
  void await_own(stream const& on, interruption const& interrupted);
  void release();

  CUcontext context;
  event begins;
  stream small;              ///< of uploads at once that have no stream of their caller
  stream arriving;           ///< behind the uploads that neither wait nor have one
  std::shared_mutex in_use;  ///< held exclusively by `close`, while it releases
  conversion_kernels converting;
  std::unique_ptr<staging> moving;  ///< null when it is closed
  bool const reads_pageable_memory;
  std::atomic<bool> abandoned{false};
  transfer_queue queue;
};

staged ring::state::run(staging_request request, std::optional<stream_view> after,
                        std::atomic<bool>& cancelled) {
  context_guard const guard{context};
  if (after) {
    require_no_capture(*after);
    begins.record(*after);
    request.begins = &begins;
  }
  return moving->run(request, cancelled);
}

/// Polls until the device has left the slots and done the small uploads, or the time is over. An
/// error does not mean that the device has left them, so the first one is noted and polling
/// continues. A lost device uses nothing.
bool ring::state::await_idle(double seconds) const {
  polling const rest;
  for (bool noted = false; true; rest.pause()) {
    try {
      context_guard const guard{context};
      if (!moving->await_idle(seconds - rest.waited_s())) { return false; }
      for (; !is_idle(small.view()); rest.pause()) {
        if (rest.waited_s() >= seconds) { return false; }
      }
      return true;
    } catch (cuda_error const& error) {
      if (!std::exchange(noted, true)) { note_cleanup_failure(error); }
      auto const is_lost = dynamic_cast<device_lost_error const*>(&error) != nullptr;
      if (is_lost || rest.waited_s() >= seconds) { return is_lost; }
    }
  }
}

/// Nothing could end a wait inside the driver.
void ring::state::await_work_of(stream_view on, interruption const& interrupted) const {
  poll_until([&] { return is_idle(on); },
             [&] { return queue.is_closed() || (interrupted && interrupted()); },
             "cancelled while it waited for a stream");
}

void ring::state::await_own(stream const& on, interruption const& interrupted) {
  std::shared_lock const held{in_use};
  if (!moving) { return; }  // `close` has waited for it
  context_guard const guard{context};
  await_work_of(on.view(), interrupted);
}

void ring::state::release() {
  queue.end_thread();
  std::unique_lock const unused{in_use};
  closing all;
  all.close(*moving);
  all.close(begins);
  all.close(small);
  all.close(arriving);
  all.close(converting);
  moving.reset();
  all.finish();
}

ring::ring(int device, ring_settings const& made, double patience_s)
    : settings_{checked(made)},
      device_{device},
      patience_s_{patience_s},
      state_{std::make_unique<state>(device, settings_)} {}

ring::~ring() {
  release_noexcept([this] { close(patience_s_); });
  if (!same_process() || state_->abandoned || state_->moving) { leak(state_.release()); }
}

staged ring::upload(layout const& from, std::uintptr_t to, std::optional<stream_view> after,
                    bool wait, interruption const& interrupted, conversion const* by) {
  note_process();
  require_device_memory(to, from);
  auto const front = state_->queue.enter(interrupted);
  auto const ends = after || wait ? after : state_->arriving.view();
  return state_->run(
      {direction::h2d, from, to, nullptr, ends, wait, false, &interrupted, nullptr, by}, after,
      front.cancelled());
}

staged ring::download(std::uintptr_t from, layout const& to, std::optional<stream_view> after,
                      interruption const& interrupted) {
  note_process();
  require_device_memory(from, to);
  validate_destination(to);
  auto const front = state_->queue.enter(interrupted);
  return state_->run({direction::d2h, to, from, nullptr, std::nullopt, false, false, &interrupted},
                     after, front.cancelled());
}

bool ring::upload_at_once(layout const& from, std::uintptr_t to, std::optional<stream_view> on,
                          conversion const* by) {
  note_process();
  require_device_memory(to, from);
  std::shared_lock<std::shared_mutex> held;
  if (!on) { held = std::shared_lock{state_->in_use}; }
  auto const bytes = by != nullptr ? by->crossing_bytes(from.bytes()) : from.bytes();
  // A device that reads pageable memory itself may read the array after the call has returned.
  if (std::max(bytes, from.bytes()) > most_at_once || state_->reads_pageable_memory ||
      state_->queue.is_closed()) {
    return false;
  }
  context_guard const guard{state_->context};
  if (on) { require_no_capture(*on); }
  if (bytes == 0) { return true; }
  auto const* array = reinterpret_cast<void const*>(from.address());
  auto const casts = by != nullptr && by->casts_on_host;
  thread_local std::vector<unsigned char> gathered;
  if (casts || !from.is_contiguous()) {
    gathered.resize(std::max(gathered.size(), bytes));
    array = gathered.data();
    if (casts) {
      read_converted(from, *by, 0, bytes, gathered.data(), cast_stores::cached);
    } else {
      from.read(0, bytes, gathered.data(), fill_kernel_of(fill_kind::plain).copy);
    }
  } else if (known_memory(from.address(), from.bytes()) != known_as::pageable) {
    return false;
  }
  auto const used = on.value_or(state_->small.view());
  auto const has_kernel = by != nullptr && by->has_kernel();
  if (has_kernel) { state_->converting.prepare(*by); }  // it may fail, and then nothing was copied
  PYXFER_TRY(driver().cuMemcpyHtoDAsync(to, array, bytes, used.handle()));
  if (has_kernel) { state_->converting.launch(*by, to, 0, bytes, used); }
  return true;
}

void ring::await_at_once(interruption const& interrupted) {
  state_->await_own(state_->small, interrupted);
}

void ring::await_uploads(interruption const& interrupted) {
  state_->await_own(state_->arriving, interrupted);
}

bool ring::download_at_once(std::uintptr_t from, layout const& to, stream_view on,
                            interruption const& interrupted) {
  note_process();
  require_device_memory(from, to);
  if (to.bytes() > most_at_once || !to.is_contiguous() || state_->queue.is_closed()) {
    return false;
  }
  context_guard const guard{state_->context};
  require_no_capture(on);
  if (to.bytes() == 0) { return true; }
  if (known_memory(to.address(), to.bytes()) != known_as::pageable) { return false; }
  state_->await_work_of(on, interrupted);
  PYXFER_TRY(driver().cuMemcpyDtoHAsync(reinterpret_cast<void*>(to.address()), from, to.bytes(),
                                        on.handle()));
  return true;
}

ticket ring::start_upload(layout const& from, std::uintptr_t to, std::optional<stream_view> after,
                          std::optional<conversion> const& by) {
  note_process();
  require_device_memory(to, from);
  auto* const used = state_.get();
  auto const begins = begin_after(after);
  return used->queue.start([used, from, to, begins, by](std::atomic<bool>& cancelled) {
    return used->run({direction::h2d, from, to, begins.get(), std::nullopt, true, true, nullptr,
                      nullptr, by ? &*by : nullptr},
                     std::nullopt, cancelled);
  });
}

void ring::prepare(conversion const& by) {
  note_process();
  std::shared_lock const held{state_->in_use};
  if (!state_->moving || !by.has_kernel()) { return; }
  context_guard const guard{state_->context};
  state_->converting.prepare(by);
}

ticket ring::start_read(std::shared_ptr<file_window const> from, std::optional<stream_view> after) {
  note_process();
  auto* const used = state_.get();
  auto const begins = begin_after(after);
  auto const arrives = std::make_shared<arrival>(device_, used->context);
  auto work = [used, from = std::move(from), begins, arrives](std::atomic<bool>& cancelled) {
    layout const no_array{0, 1, {0}, {1}};
    return used->run({direction::h2d, no_array, 0, begins.get(), std::nullopt, false, false,
                      nullptr, from.get(), nullptr, arrives.get()},
                     std::nullopt, cancelled);
  };
  return used->queue.start(std::move(work), arrives);
}

/// An event behind the earlier work of a stream. It is recorded now: a transfer that was started
/// does not wait for later work.
std::shared_ptr<event> ring::begin_after(std::optional<stream_view> after) const {
  if (!after) { return nullptr; }
  context_guard const guard{state_->context};
  require_no_capture(*after);
  auto begins = std::make_shared<event>(device_, event_use::order);
  begins->record(*after);
  return begins;
}

void ring::alert() {
  note_process();
  std::shared_lock const held{state_->in_use, std::try_to_lock};
  if (held && state_->moving) { state_->moving->alert(); }
}

void ring::cancel() noexcept { state_->queue.cancel(); }

void ring::close(double patience_s) {
  if (!same_process() || state_->abandoned) { return; }
  polling const since;
  auto const front = state_->queue.close(patience_s);
  if (!front || !state_->moving) { return; }
  if (!state_->await_idle(patience_s - since.waited_s())) {
    std::ostringstream text;
    text << "The device did not finish the copies of a ring within " << patience_s
         << " s. Another program may hold it, or it has hung: look at nvidia-smi and for Xid in "
            "dmesg.";
    throw timeout_error(text.str());
  }
  state_->release();
}

void ring::abandon() noexcept {
  if (!same_process()) { return; }
  state_->abandoned = true;
  state_->queue.abandon();
}

sample time_drained(bench& streams, ring& through, lane const& along, std::size_t slot) {
  auto const host = reinterpret_cast<std::uintptr_t>(along.host_at(slot));
  auto const device = reinterpret_cast<std::uintptr_t>(along.device_at(slot));
  layout const array{host, 1, {static_cast<std::ptrdiff_t>(along.bytes)}, {1}};
  // With `wait` the ring polls, and can be cancelled. Uploads by the driver cannot be.
  auto const wait = !through.plan_for(along.bytes).is_left_to_driver();
  return time_drained(streams, [&] {
    if (along.way == direction::h2d) {
      through.upload(array, device, std::nullopt, wait);
    } else {
      through.download(device, array, std::nullopt);
    }
  });
}

}  // namespace pyxfer
