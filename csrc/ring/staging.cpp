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

std::vector<station> make_stations(int device, host_buffer const& slots,
                                   ring_settings const& made) {
  std::vector<station> stations;
  stations.reserve(static_cast<std::size_t>(made.threads));
  for (int i = 0; i < made.threads; ++i) {
    auto const before = static_cast<std::size_t>(i) * made.station_bytes();
    stations.emplace_back(device, slots.address() + before, made);
  }
  return stations;
}

}  // namespace

staging::staging(int device, CUcontext context, ring_settings const& made)
    : settings_{made},
      fill_{fill_kernel_of(made.fill).copy},
      slots_{made.pinned_bytes(), memory_kind::pinned, device},
      stations_{make_stations(device, slots_, made)},
      crew_{context, made.threads - 1, made.spin_us * per_us} {}

staged staging::run(staging_request const& request, cancels& by, std::uint64_t before) {
  auto const begin = host_clock::now();
  chunk_plan const plan{request.array.bytes(), settings_};
  by.begin(before);
  transfer shared{request, plan, fill_, by.stopped()};
  try {
    if (!start(by.stopped()) || !move(shared, plan.threads()) || !finish(request, by.stopped())) {
      throw cancelled_error(cancelled_text(request.way));
    }
  } catch (device_lost_error const&) {
    throw;  // it does nothing more, and answers nothing
  } catch (...) {
    give_up(request, by, before);
    throw;
  }
  auto taken = sum();
  taken.wall_s = seconds_between(begin, host_clock::now());
  return taken;
}

/// Whether nobody ended the wait for copies of a transfer that was given up: they could come after
/// this one's, to the same place.
bool staging::start(std::atomic<bool> const& stopped) {
  for (auto& each : stations_) { each.prepare(); }
  if (!late_) { return true; }
  late_ = !std::all_of(stations_.begin(), stations_.end(), [&](station const& each) {
    return each.wait(as_long_as_it_takes, &stopped);
  });
  return !late_;
}

/// Whether every chunk was moved.
bool staging::move(transfer& shared, int threads) {
  crew_.run(threads - 1, [&](int seat) {
    try {
      stations_[static_cast<std::size_t>(seat)].work(shared);
    } catch (...) { shared.fail(); }
  });
  shared.rethrow();
  return sum().chunks == shared.plan().chunks();
}

/// Whether nobody ended the wait for the last copies.
bool staging::finish(staging_request const& request, std::atomic<bool> const& stopped) {
  return std::all_of(stations_.begin(), stations_.end(), [&](station const& each) {
    if (!each.has_issued()) { return true; }
    if (request.wait) { return each.wait(as_long_as_it_takes, &stopped); }
    if (request.ends) { each.hold(*request.ends); }
    return true;
  });
}

/// What was issued may write to memory that the caller frees next.
void staging::give_up(staging_request const& request, cancels& by, std::uint64_t before) noexcept {
  for (auto& each : stations_) {
    if (!each.has_issued()) { continue; }
    release_noexcept([&] {
      each.settle();
      if (request.ends) { each.hold(*request.ends); }
    });
  }
  by.begin(before);  // so that not what has failed is seen, but whether somebody cancels
  auto const latest = host_clock::now() + cancelled_drain;
  auto const has_ended = [&](station const& each) {
    return each.is_settled() &&
           (each.wait(as_long_as_it_takes, &by.stopped()) ||
            each.wait(std::max(0.0, seconds_between(host_clock::now(), latest)), nullptr));
  };
  bool all_ended = true;
  for (auto const& each : stations_) {
    if (!each.has_issued()) { continue; }
    bool ended = false;
    release_noexcept([&] { ended = has_ended(each); });
    all_ended = all_ended && ended;
  }
  if (all_ended) { return; }
  late_ = true;
  if (request.way == direction::h2d && !request.ends) { note_cleanup_failure(late_text); }
}

staged staging::sum() const {
  staged total{};
  for (auto const& each : stations_) {
    total.chunks += each.chunks();
    total.threads += each.chunks() != 0 ? 1 : 0;
    total.waited_s += each.waited_s();
    total.filled_s += each.filled_s();
  }
  return total;
}

void staging::await_idle(double seconds) const {
  for (auto const& each : stations_) { each.await_idle(patience{seconds}); }
}

void staging::close() {
  crew_.close();
  closing all;
  for (auto& each : stations_) { all.close(each); }
  all.close(slots_);
  all.finish();
}

}  // namespace pyxfer
