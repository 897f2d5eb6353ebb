#include "transfer.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <utility>

#include "device.hpp"
#include "entry.hpp"
#include "memory.hpp"
#include "stream_registry.hpp"

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

/// -1 for host memory.
int device_at(void const* address, placement where) {
  auto const known = where == placement::device ? memory().find(address) : std::nullopt;
  return known ? known->device : -1;
}

/// The processor time of this thread, in which waiting for a core does not count.
steady::duration cpu_time() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds{used.tv_sec} + std::chrono::nanoseconds{used.tv_nsec};
}

/// Moves the first or the second half of the bytes.
void move_half_of(transfer const& copy, std::size_t half, loss_epoch const& epoch) {
  auto const first = half == 0 ? 0 : copy.bytes / 2;
  auto const bytes = (half == 0 ? copy.bytes / 2 : copy.bytes) - first;
  auto* const to = static_cast<std::byte*>(copy.to) + first;
  auto const* const from = static_cast<std::byte const*>(copy.from) + first;
  // memmove, because overlapping ranges are an error of the caller, but must not be undefined here.
  touch_memory(epoch, [&] { std::memmove(host_view(to), host_view(from), bytes); });
}

cupti::copy_activity record_of(transfer const& copy, activity_place const& where,
                               activity_span const& when) {
  // By CUpti_ActivityMemcpyKind.
  constexpr std::array<std::uint8_t, 4> ways{9, 1, 2, 8};
  auto raw = work_record<cupti::copy_activity>(cupti::activity_kind::copy, where, when);
  raw.way = ways.at(static_cast<std::size_t>(copy.kind));
  raw.source = static_cast<std::uint8_t>(copy.source);
  raw.target = static_cast<std::uint8_t>(copy.target);
  raw.flags = copy.asynchronous ? cupti::asynchronous : 0;
  return raw;
}

steady::time_point carry_out_all(std::vector<transfer> const& copies, activity_place const& where,
                                 work_start start) {
  std::vector<cupti::copy_activity> records;
  for (auto const& copy : copies) {
    auto const when =
        move_modelled(copy.bytes, copy.path, &copy == &copies.front(), start,
                      [&](std::size_t half) { move_half_of(copy, half, start.epoch); });
    start.ready = when.end;
    if (where.correlation == 0 || !is_current(start.epoch)) continue;
    auto const raw = record_of(copy, where, when);
    // Like the real driver, one record for consecutive copies between the same kinds of memory.
    auto const merged = !records.empty() && records.back().way == raw.way &&
                        records.back().source == raw.source && records.back().target == raw.target;
    auto& record = merged ? records.back() : records.emplace_back(raw);
    record.end = raw.end;
    record.bytes += copy.bytes;
    ++record.copies;
  }
  for (auto const& record : records) push(record);
  return start.ready;
}

engine engine_of(copy_path path) {
  if (path.from < 0) return path.to < 0 ? engine::none : engine::h2d;
  return path.to < 0 ? engine::d2h : engine::between_devices;
}

}  // namespace

activity_span move_modelled(std::size_t bytes, copy_path path, bool first, work_start const& start,
                            std::function<void(std::size_t)> const& move_half) {
  auto const modelled = link().occupy(path, bytes, first, start.ready);
  // Half of the bytes move when the copy begins and half when it ends. So a test finds wrong bytes
  // if the source was changed, or the target was read or written, too early or too late.
  auto const lost = [&] { return !is_current(start.epoch); };
  if (!modelled) {
    auto const began = steady::now();
    move_half(0);
    move_half(1);
    return {began, steady::now()};
  }
  auto const used_before = cpu_time();
  move_half(0);
  auto const half_takes = cpu_time() - used_before;
  pause_until(modelled->end - half_takes, lost);
  move_half(1);
  pause_until(modelled->end, lost);
  return *modelled;
}

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
  planned.to = to;
  planned.from = from;
  planned.bytes = bytes;
  planned.kind = actual;
  planned.pageable = pageable;
  planned.source = memory_at(source);
  planned.target = memory_at(target);
  planned.path = {device_at(from, source), device_at(to, target)};
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
  auto const by = copies.empty() ? engine::none : engine_of(copies.front().path);
  auto work = [copies = std::move(copies), delay, where](work_start const& start) {
    return carry_out_all(copies, where, {start.epoch, delay.serve(start.ready)});
  };
  return streams().enqueue(on, std::move(work), {}, by);
}

}  // namespace pyxfer::hostrt
