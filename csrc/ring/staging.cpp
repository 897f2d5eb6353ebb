#include "ring/staging.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/error.hpp"
#include "cuda/wait.hpp"

#include <algorithm>
#include <limits>

namespace pyxfer {
namespace {

constexpr double as_long_as_it_takes = std::numeric_limits<double>::infinity();

/// Whoever cancels gets an answer within a tenth of a second, so the copies may take a part of it.
constexpr auto cancelled_drain = std::chrono::milliseconds{50};

constexpr char const* late_text =
    "copies of an upload that was given up may still come: its destination is in use until the "
    "device is idle";

constexpr double per_us = 1e-6;

char const* cancelled_text(direction way) {
  return way == direction::h2d ? "cancelled during an upload" : "cancelled during a download";
}

/// Little is not worth the way through the caches: they pay when slots are used again.
constexpr std::size_t little = std::size_t{8} << 20U;

/// Of a download few threads keep up with the engine, and more are in its way; as many are enough
/// for what runs beside the caller's own work.
constexpr int few_threads = 4;
/// To demote takes longer than to stream: it pays with so many that they would wait for memory.
constexpr int threads_to_demote = 9;

int most_threads(staging_request const& request, int threads) {
  auto const few = std::min(threads, few_threads);
  if (request.beside) { return few; }
  return request.way == direction::h2d ? threads : std::max((threads + 1) / 2, few);
}

fill_function fill_for(staging_request const& request, ring_settings const& made) {
  auto const can_demote = request.way == direction::h2d && request.array.bytes() >= little &&
                          most_threads(request, made.threads) >= threads_to_demote;
  auto const demotes = made.fill == fill_kind::demoting;
  return fill_kernel_of(demotes && !can_demote ? fill_kind::streaming : made.fill).copy;
}

}  // namespace

staging::staging(int device, CUcontext context, ring_settings const& made)
    : settings_{made},
      slots_{made.pinned_bytes(), memory_kind::pinned, device},
      conveyor_{device, slots_.address(), made},
      crew_{context, made.threads - 1, made.spin_us * per_us} {}

staged staging::run(staging_request const& request, cancels& by, std::uint64_t before) {
  auto const begin = host_clock::now();
  by.begin(before);
  transfer shared{request,
                  {request.array.bytes(), settings_, most_threads(request, settings_.threads)},
                  fill_for(request, settings_),
                  by.stopped()};
  auto const how = manner_of(request, shared.plan());
  try {
    if (!move(shared, how, request.wait)) { throw cancelled_error(cancelled_text(request.way)); }
    if (request.ends && !request.wait && conveyor_.has_issued()) { conveyor_.hold(*request.ends); }
  } catch (device_lost_error const&) {
    throw;  // it does nothing more, and answers nothing
  } catch (...) {
    give_up(request, by, before);
    throw;
  }
  auto taken = conveyor_.taken();
  taken.wall_s = seconds_between(begin, host_clock::now());
  return taken;
}

/// Where the engine can read or write the array itself, or it is little and the driver's own way is
/// short. Not while the device has something else to do before: slots take the array up meanwhile.
/// Nor a little download, during which the driver would hear no cancelling.
staging::manner staging::manner_of(staging_request const& request, chunk_plan const& cut) {
  auto const& array = request.array;
  auto const begins_late = request.begins != nullptr && !request.begins->passed();
  if (!array.is_contiguous() || array.bytes() == 0 || (begins_late && !request.wait)) {
    return manner::through_slots;
  }
  auto const memory = known_memory(array.address(), array.bytes());
  if (memory == known_as::page_locked) { return manner::from_where_it_lies; }
  auto const can_be_left =
      request.way == direction::h2d && !begins_late && memory != known_as::of_device;
  return can_be_left && cut.is_left_to_driver() ? manner::by_the_driver : manner::through_slots;
}

/// Whether it is on its way, or with `wait` has arrived.
bool staging::move_directly(transfer& shared, bool wait) {
  conveyor_.prepare(shared, 0);
  conveyor_.pass_by(shared);
  return conveyor_.has_issued() && conveyor_.finish(shared, wait);
}

/// Whether all is on its way, or with `wait` has arrived.
bool staging::move(transfer& shared, manner how, bool wait) {
  switch (how) {
    case manner::through_slots: return move_chunks(shared, wait);
    case manner::by_the_driver: return move_directly(shared, wait);
    case manner::from_where_it_lies: return move_directly(shared, true);  // it is read until then
  }
  return false;
}

/// The caller works as one of them: a thread that sleeps meanwhile wakes late.
bool staging::move_chunks(transfer& shared, bool wait) {
  conveyor_.prepare(shared, shared.plan().chunks());
  bool finished = false;
  crew_.run(shared.plan().threads() - 1, [&](int seat) {
    try {
      if (seat == 0) {
        finished = conveyor_.lead(shared, wait);
      } else {
        conveyor_.work(shared);
      }
    } catch (...) { shared.fail(); }
  });
  shared.rethrow();
  return finished && conveyor_.taken().chunks == shared.plan().chunks();
}

/// What was issued may write to memory that the caller frees next.
void staging::give_up(staging_request const& request, cancels& by, std::uint64_t before) noexcept {
  if (!conveyor_.has_issued()) { return; }
  release_noexcept([&] {
    conveyor_.settle();
    if (request.ends) { conveyor_.hold(*request.ends); }
  });
  by.begin(before);  // so that not what has failed is seen, but whether somebody cancels
  bool ended = false;
  release_noexcept([&] {
    auto const latest = host_clock::now() + cancelled_drain;
    ended = conveyor_.is_settled() &&
            (conveyor_.wait(as_long_as_it_takes, &by.stopped()) ||
             conveyor_.wait(std::max(0.0, seconds_between(host_clock::now(), latest)), nullptr));
  });
  if (!ended && request.way == direction::h2d && !request.ends) { note_cleanup_failure(late_text); }
}

void staging::await_idle(double seconds) const { conveyor_.await_idle(patience{seconds}); }

void staging::close() {
  crew_.close();
  closing all;
  all.close(conveyor_);
  all.close(slots_);
  all.finish();
}

}  // namespace pyxfer
