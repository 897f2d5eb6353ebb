#include "transfer.hpp"

#include <cstdint>
#include <cstring>
#include <utility>

#include "link.hpp"
#include "loss.hpp"
#include "memory_registry.hpp"
#include "stream_registry.hpp"

namespace pyxfer::hostrt {
namespace {

cudaMemcpyKind kind_between(placement from, placement to) {
  auto const from_device = from == placement::device;
  if (to == placement::device)
    return from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

void carry_out(transfer const& copy, int device, bool first, std::uint64_t epoch) {
  auto const arrival = link().occupy(device, copy.kind, copy.bytes, first);
  // Overlapping ranges are the caller's error; memmove makes it a wrong copy, not undefined.
  touch_memory(epoch, [&] { std::memmove(copy.to, copy.from, copy.bytes); });
  if (arrival == steady::time_point{}) return;
  pause_until(arrival, [&] { return !is_current(epoch); });
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
  planned = {to, from, bytes, actual, pageable, nullptr};
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
  auto work = [copies = std::move(copies), delay, device = on->device()](std::uint64_t epoch) {
    delay.serve();
    for (auto const& copy : copies) carry_out(copy, device, &copy == &copies.front(), epoch);
  };
  return streams().enqueue(on, std::move(work));
}

}  // namespace pyxfer::hostrt
