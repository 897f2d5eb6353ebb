#include "ring/staging.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/error.hpp"
#include "cuda/wait.hpp"

#include <algorithm>
#include <limits>

namespace pyxfer {
namespace {

constexpr double per_us = 1e-6;
constexpr double unlimited = std::numeric_limits<double>::infinity();

/// In a download a few threads keep up with the engine, and more slow it down. The same number is
/// enough for a transfer that runs beside the caller's own work.
constexpr int few_threads = 4;
/// Demoting takes more time of a core than streaming, and pays when memory limits the threads.
constexpr int threads_to_demote = 9;
/// Demoting pays only when slots are used again, which smaller transfers do not do.
constexpr std::size_t least_demoted_bytes = std::size_t{8} << 20U;

/// How long a cancelled transfer waits for its copies: half of the tenth of a second within which
/// it ends.
constexpr double cancelled_drain_s = 0.05;
/// The same if the copies access the array itself, which its owner uses again. They only take this
/// long on a device that has hung.
constexpr double direct_drain_s = 1.0;

constexpr char const* late_text =
    "copies of a cancelled transfer may still be running: its device memory, and its array if that "
    "is page-locked, are in use until the device is idle";

char const* cancelled_text(direction way) {
  return way == direction::h2d ? "cancelled during an upload" : "cancelled during a download";
}

int most_threads(staging_request const& request, int threads) {
  auto const few = std::min(threads, few_threads);
  if (request.beside) { return few; }
  return request.way == direction::h2d ? threads : std::max((threads + 1) / 2, few);
}

bool demoting_pays(staging_request const& request, int threads) {
  return request.way == direction::h2d && request.bytes() >= least_demoted_bytes &&
         most_threads(request, threads) >= threads_to_demote;
}

fill_function fill_for(staging_request const& request, ring_settings const& made) {
  auto kind = made.fill;
  if (kind == fill_kind::demoting && !demoting_pays(request, made.threads)) {
    kind = fill_kind::streaming;
  }
  return fill_kernel_of(kind).copy;
}

bool accesses_pageable_memory(int device) {
  int value = 0;
  PYXFER_TRY(cudaDeviceGetAttribute(&value, cudaDevAttrPageableMemoryAccess, device));
  return value != 0;
}

}  // namespace

staging::staging(int device, CUcontext context, ring_settings const& made,
                 conversion_kernels& converting)
    : settings_{made},
      reads_pageable_memory_{accesses_pageable_memory(device)},
      slots_{made.pinned_bytes(), memory_kind::pinned, device},
      mover_{device, slots_.address(), made, converting},
      crew_{context, made.threads - 1, made.spin_us * per_us} {}

staged staging::run(staging_request const& request, std::atomic<bool>& cancelled) {
  auto const begin = host_clock::now();
  transfer shared{request,
                  {request.bytes(), settings_, most_threads(request, settings_.threads)},
                  fill_for(request, settings_),
                  cancelled,
                  begin};
  auto const how = manner_of(request, shared.plan());
  try {
    if (!move(shared, how, request.wait)) { throw cancelled_error(cancelled_text(request.way)); }
    if (request.ends && !request.wait && mover_.has_issued()) { mover_.hold(*request.ends); }
    if (request.arrives != nullptr && mover_.has_issued()) { mover_.record_in(*request.arrives); }
  } catch (device_lost_error const&) {
    throw;  // no copy is still running, and no wait would succeed
  } catch (...) {
    end_copies(request, how, cancelled);
    throw;
  }
  auto taken = mover_.totals();
  taken.wall_s = seconds_between(begin, host_clock::now());
  return taken;
}

/// Chooses how to move an array: directly, if the engine can access the array itself; by the
/// driver, if an upload is so small that the driver's own staging is faster; else through the
/// slots. Those also take an upload that does not wait while the device has earlier work to do,
/// because the array has been read when it is in the slots; and small downloads, because they could
/// not be cancelled inside the driver.
staging::manner staging::manner_of(staging_request const& request, chunk_plan const& cut) {
  if (request.files != nullptr || request.casts_on_host()) { return manner::through_slots; }
  auto const& array = request.array;
  auto const begins_late = request.begins != nullptr && !request.begins->passed();
  auto const returns_at_end = request.wait || request.way == direction::d2h;
  if (!array.is_contiguous() || array.bytes() == 0 || (begins_late && !returns_at_end)) {
    return manner::through_slots;
  }
  auto const memory = known_memory(array.address(), array.bytes());
  if (memory == known_as::page_locked) {
    return begins_late ? manner::direct_and_late : manner::direct;
  }
  auto const driver_can =
      request.way == direction::h2d && !begins_late && memory == known_as::pageable;
  return driver_can && cut.is_left_to_driver() ? manner::by_the_driver : manner::through_slots;
}

/// Returns whether all copies were issued, or with `wait` have ended.
bool staging::move(transfer& shared, manner how, bool wait) {
  switch (how) {
    case manner::through_slots: return move_chunks(shared, wait);
    // The copy "might be synchronous with respect to host" (CUDA 12.9, API synchronization
    // behavior). A device that reads pageable memory itself may read the array after the call.
    case manner::by_the_driver: return move_directly(shared, wait || reads_pageable_memory_, false);
    case manner::direct: return move_directly(shared, true, false);  // the copies read the array
    case manner::direct_and_late: return move_directly(shared, true, true);
  }
  return false;
}

/// If the work that the copies wait for is `late`, the host waits for it: a copy that is issued
/// before could access the array after the transfer was cancelled.
bool staging::move_directly(transfer& shared, bool wait, bool late) {
  mover_.prepare(shared, 0);
  auto const piece =
      shared.kernel() != nullptr ? 4 * chunk_mover::converted_piece : chunk_mover::usual_piece;
  return (!late || chunk_mover::await_begin(shared)) && mover_.copy_direct(shared, wait, piece);
}

bool staging::move_chunks(transfer& shared, bool wait) {
  mover_.prepare(shared, shared.plan().chunks());
  bool finished = false;
  crew_.run(shared.plan().threads() - 1, [&](int seat) {
    try {
      if (seat == 0) {
        finished = mover_.run_as_caller(shared, wait);
      } else {
        mover_.run_as_crew(shared);
      }
    } catch (...) { shared.fail(); }
  });
  shared.rethrow();
  return finished && mover_.totals().chunks == shared.plan().chunks();
}

/// Waits for the copies that were issued, because they may use memory that the caller frees next.
/// After a cancellation it waits only briefly, because the copies may wait for other work.
void staging::end_copies(staging_request const& request, manner how,
                         std::atomic<bool> const& cancelled) noexcept {
  if (!mover_.has_issued()) { return; }
  release_noexcept([&] {
    mover_.settle();
    if (request.ends) { mover_.hold(*request.ends); }
  });
  auto const touches_array = how == manner::direct || how == manner::direct_and_late;
  bool ended = false;
  release_noexcept([&] {
    ended = mover_.is_settled() &&
            (mover_.wait(unlimited, &cancelled) ||
             mover_.wait(touches_array ? direct_drain_s : cancelled_drain_s, nullptr));
  });
  auto const is_ordered = request.way == direction::d2h || request.ends;
  if (!ended && (touches_array || !is_ordered)) { note_cleanup_failure(late_text); }
}

void staging::close() {
  crew_.close();
  closing all;
  all.close(mover_);
  all.close(slots_);
  all.finish();
}

}  // namespace pyxfer
