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
constexpr std::size_t little = std::size_t{1} << 20U;

fill_function fill_for(staging_request const& request, ring_settings const& made) {
  auto const past_caches = request.way == direction::d2h || request.array.bytes() < little;
  auto const kind =
      made.fill == fill_kind::demoting && past_caches ? fill_kind::streaming : made.fill;
  return fill_kernel_of(kind).copy;
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
  transfer shared{
      request, {request.array.bytes(), settings_}, fill_for(request, settings_), by.stopped()};
  try {
    conveyor_.prepare(shared);
    if (!move(shared) || !conveyor_.finish(shared, request.wait)) {
      throw cancelled_error(cancelled_text(request.way));
    }
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

/// Whether the threads have moved every chunk.
bool staging::move(transfer& shared) {
  crew_.run(shared.plan().threads() - 1, [&](int /*seat*/) {
    try {
      conveyor_.work(shared);
    } catch (...) { shared.fail(); }
  });
  shared.rethrow();
  return conveyor_.taken().chunks == shared.plan().chunks();
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
