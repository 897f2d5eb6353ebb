#include "transfer.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "link.hpp"
#include "loss.hpp"
#include "memory_registry.hpp"
#include "stream_registry.hpp"
#include "thread_state.hpp"
#include "told_copies.hpp"

namespace pyxfer::hostrt {
namespace {

cudaMemcpyKind kind_between(placement from, placement to) {
  auto const from_device = from == placement::device;
  if (to == placement::device)
    return from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

activity_memory memory_at(placement where) {
  if (where == placement::device) return activity_memory::device;
  return where == placement::locked ? activity_memory::pinned : activity_memory::pageable;
}

copy_sides sides_of(cudaMemcpyKind kind, placement source, placement target) {
  // By CUpti_ActivityMemcpyKind.
  constexpr std::array<std::uint8_t, 4> ways{9, 1, 2, 8};
  return {ways.at(static_cast<std::size_t>(kind)), memory_at(source), memory_at(target)};
}

void move_bytes(transfer const& copy, std::size_t first, std::size_t bytes, std::uint64_t epoch) {
  auto* const to = static_cast<std::byte*>(copy.to) + first;
  auto const* const from = static_cast<std::byte const*>(copy.from) + first;
  // Overlapping ranges are the caller's error; memmove makes it a wrong copy, not undefined.
  touch_memory(epoch, [&] { std::memmove(to, from, bytes); });
}

/// Returns when the copy began.
steady::time_point carry_out(transfer const& copy, activity_place const& where, bool first,
                             std::uint64_t epoch) {
  auto const modelled = link().occupy(where.device, copy.kind, copy.bytes, first);
  auto const begin = modelled ? modelled->begin : told_time(where);
  // Half of the bytes move when the copy begins and half when it ends, so that a source changed, or
  // a target read or written, at the wrong time gives wrong bytes whether it was too early or too
  // late.
  auto const half = copy.bytes / 2;
  auto const moved_from = steady::now();
  move_bytes(copy, 0, half, epoch);
  if (modelled) {
    auto const second_half_takes = steady::now() - moved_from;
    pause_until(modelled->end - second_half_takes, [&] { return !is_current(epoch); });
  }
  move_bytes(copy, half, copy.bytes - half, epoch);
  if (modelled) pause_until(modelled->end, [&] { return !is_current(epoch); });
  return begin;
}

void carry_out_all(std::vector<transfer> const& copies, activity_place const& where,
                   std::uint64_t epoch) {
  told_copies told{where};
  for (auto const& copy : copies) {
    auto const begin = carry_out(copy, where, &copy == &copies.front(), epoch);
    if (is_current(epoch)) told.add(copy, {begin, told_time(where)});
  }
}

}  // namespace

cudaError_t plan(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind,
                 transfer& planned) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
    return cudaErrorInvalidMemcpyDirection;
  }
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
  auto const source = memory().place(from, bytes);
  auto const target = memory().place(to, bytes);
  if (source == placement::outside || target == placement::outside) return cudaErrorInvalidValue;
  auto const actual = kind_between(source, target);
  if (kind != cudaMemcpyDefault && kind != actual) return cudaErrorInvalidValue;
  auto const pageable = source == placement::pageable || target == placement::pageable;
  planned = {to, from, bytes, actual, pageable, false, sides_of(actual, source, target), nullptr};
  return cudaSuccess;
}

void stage(transfer& planned) {
  auto staged = std::make_shared<std::vector<std::byte>>(planned.bytes);
  std::memcpy(staged->data(), planned.from, planned.bytes);
  planned.from = staged->data();
  planned.staged = std::move(staged);
}

stream_point submit(std::shared_ptr<stream> const& on, std::vector<transfer> copies,
                    ordered_delay const& delay) {
  activity_place const where{on->device(), on->id(), this_thread().correlation};
  auto work = [copies = std::move(copies), delay, where](std::uint64_t epoch) {
    delay.serve();
    carry_out_all(copies, where, epoch);
  };
  return streams().enqueue(on, std::move(work));
}

}  // namespace pyxfer::hostrt
