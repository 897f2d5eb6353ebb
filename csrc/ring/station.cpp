#include "ring/station.hpp"

#include "copy/issue.hpp"
#include "cuda/cleanup.hpp"

#include <limits>

namespace pyxfer {
namespace {

/// A wait that an error, or whoever cancels, ends.
constexpr double as_long_as_it_takes = std::numeric_limits<double>::infinity();

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

station::station(int device, std::uintptr_t slots, ring_settings const& made) : stream_{device} {
  auto const count = static_cast<std::size_t>(made.slots);
  slots_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    slots_.push_back({slots + i * made.chunk_bytes, event{device, event_use::order}});
  }
}

void station::prepare() {
  if (!settled_) { settle(); }
  issued_ = false;
  chunks_ = 0;
  waited_s_ = 0;
  filled_s_ = 0;
}

void station::work(transfer& shared) {
  if (shared.way() == direction::h2d) {
    upload(shared);
  } else {
    download(shared);
  }
}

void station::upload(transfer& shared) {
  while (auto const part = shared.claim()) {
    auto const& into = slots_[turn_ % slots_.size()];
    if (!await(into.passed, shared)) { return; }
    time_fill([&] { shared.fill(*part, pointer(into.address)); });
    if (shared.is_stopped()) { return; }
    issue(*part, shared);
    ++chunks_;
  }
}

/// All slots are on their way before the first is emptied, so that the engine need not wait for it.
void station::download(transfer& shared) {
  std::array<chunk, most_ring_slots> under_way{};
  auto const slots = slots_.size();
  auto oldest = turn_;
  for (auto more = true; more || oldest != turn_;) {
    while (more && turn_ - oldest < slots) {
      auto const part = shared.claim();
      more = part.has_value();
      if (more) {
        under_way.at(turn_ % slots) = *part;
        issue(*part, shared);
      }
    }
    if (oldest == turn_) { return; }
    auto const& from = slots_[oldest % slots];
    if (!await(from.passed, shared)) { return; }
    time_fill([&] { shared.empty(under_way.at(oldest % slots), pointer(from.address)); });
    ++oldest;
    ++chunks_;
  }
}

void station::issue(chunk const& part, transfer const& shared) {
  auto& through = slots_[turn_ % slots_.size()];
  if (!issued_) { shared.hold(stream_.view()); }
  issued_ = true;
  settled_ = false;
  copy_async({shared.way(), through.address, shared.device_at(part), part.bytes(), 0, 1}, 0,
             stream_.view());
  through.passed.record(stream_.view());
  settled_ = true;
  ++turn_;
}

bool station::await(event const& passed, transfer const& shared) {
  if (passed.passed()) { return true; }
  auto const begin = host_clock::now();
  auto const came = wait_for(passed, as_long_as_it_takes, &shared.stopped());
  waited_s_ += seconds_between(begin, host_clock::now());
  return came;
}

template <typename Copy>
void station::time_fill(Copy const& copy) {
  auto const begin = host_clock::now();
  copy();
  filled_s_ += seconds_between(begin, host_clock::now());
}

event const& station::last() const { return slots_[(turn_ - 1) % slots_.size()].passed; }

bool station::wait(double seconds, std::atomic<bool> const* stopped) const {
  return wait_for(last(), seconds, stopped);
}

void station::await_idle(patience const& limit) const {
  pyxfer::wait(last(), limit, "the copies of a ring");
}

void station::settle() {
  for (auto& each : slots_) { each.passed.record(stream_.view()); }
  settled_ = true;
}

void station::close() {
  closing all;
  for (auto& each : slots_) { all.close(each.passed); }
  all.close(stream_);
  all.finish();
}

}  // namespace pyxfer
