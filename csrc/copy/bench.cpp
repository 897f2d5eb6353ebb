#include "copy/bench.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"

#include <utility>

namespace pyxfer {
namespace {

/// Long enough for the rest of a window, and short enough that Ctrl-C ends a run within a second.
constexpr double drain_s = 0.5;

}  // namespace

bench::bench(int device, std::size_t streams, patience limit)
    : device_{device}, limit_{std::move(limit)} {
  streams_.reserve(streams);
  for (std::size_t i = 0; i < streams; ++i) { streams_.emplace_back(device_); }
  events_.reserve(own_marks + streams);
  for (std::size_t i = 0; i < own_marks + streams; ++i) { events_.emplace_back(device_); }
}

// NOLINTNEXTLINE(readability-make-member-function-const): it queues work on the streams
void bench::fork(event& at) {
  if (width() == 1) { return; }
  at.record(on(0));
  for (std::size_t i = 1; i < width(); ++i) { at.hold(on(i)); }
}

void bench::join() {
  for (std::size_t i = 1; i < width(); ++i) {
    auto& reached = mark(own_marks + i);
    reached.record(on(i));
    reached.hold(on(0));
  }
}

void bench::meet() {
  for (std::size_t i = 0; i < width(); ++i) { mark(own_marks + i).record(on(i)); }
  for (std::size_t i = 0; i < width(); ++i) {
    for (std::size_t other = 0; other < width(); ++other) {
      if (other != i) { mark(own_marks + other).hold(on(i)); }
    }
  }
}

void bench::drain() noexcept {
  release_noexcept([this] {
    device_guard const guard{device_};
    for (std::size_t i = 0; i < width(); ++i) { mark(own_marks + i).record(on(i)); }
    for (std::size_t i = 0; i < width(); ++i) {
      if (!wait_for(mark(own_marks + i), drain_s)) {
        note_cleanup_failure("a copy was still under way half a second after it was given up");
        return;
      }
    }
  });
}

void bench::close() {
  closing all;
  for (auto& event : events_) { all.close(event); }
  for (auto& stream : streams_) { all.close(stream); }
  all.finish();
}

void bench::abandon() noexcept {
  for (auto& event : events_) { event.abandon(); }
  for (auto& stream : streams_) { stream.abandon(); }
}

drain_guard::~drain_guard() {
  if (armed_) { bench_.drain(); }
}

}  // namespace pyxfer
