#include <cuda_runtime_api.h>

#include <cstring>

#include "activity.hpp"
#include "entry.hpp"
#include "loss.hpp"
#include "memory_registry.hpp"
#include "stream_calls.hpp"
#include "stream_registry.hpp"
#include "synchronize.hpp"
#include "transfer.hpp"

using namespace pyxfer::hostrt;

namespace {

/// Up to here the driver takes a pageable source along with the command, by the documentation.
constexpr std::size_t staged_limit = std::size_t{64} << 10U;
/// The same for a stream that is busy: an H100 with driver 580 returned at once at 1 MiB, and
/// waited at 64 MiB.
constexpr std::size_t staged_limit_when_busy = std::size_t{1} << 20U;

cudaError_t copy_blocking(transfer copy) {
  std::shared_ptr<pyxfer::hostrt::stream> on;
  if (auto const code = find_for_work(cudaStreamLegacy, on); code != cudaSuccess) return code;
  if (copy.kind == cudaMemcpyHostToDevice && copy.pageable) {
    if (auto const code = synchronize(streams().pending(on)); code != cudaSuccess) return code;
    if (copy.bytes <= staged_limit) {
      stage(copy);
      submit(on, {copy}, ordered_delay{0});
      return cudaSuccess;
    }
  }
  auto const arrival = submit(on, {copy}, ordered_delay{0});
  // The real call does not wait for a copy that stays on the device.
  return copy.kind == cudaMemcpyDeviceToDevice ? cudaSuccess : synchronize({arrival});
}

struct memset_order {
  void* to;
  int value;
  std::size_t bytes;
  bool asynchronous;
};

void tell(memset_order const& order, activity_place const& where, activity_span const& when) {
  auto const locked = memory().place(order.to, order.bytes) == placement::locked;
  emit_set(where, when, locked ? activity_memory::pinned : activity_memory::device, order.bytes,
           order.asynchronous);
}

stream_point queue_memset(std::shared_ptr<stream> const& on, memset_order const& order,
                          ordered_delay const& delay) {
  activity_place const where{on->device(), on->id(), this_thread().correlation};
  return streams().enqueue(on, [=](work_start const& start) {
    delay.serve(start.ready);
    auto const set = [&] { std::memset(order.to, order.value, order.bytes); };
    auto const begin = steady::now();
    touch_memory(start.epoch, set);
    auto const end = steady::now();
    if (where.correlation != 0 && is_current(start.epoch)) tell(order, where, {begin, end});
    return end;
  });
}

bool can_set(void const* address, std::size_t bytes) {
  auto const where = memory().place(address, bytes);
  return where == placement::device || where == placement::locked;
}

}  // namespace

cudaError_t cudaMemcpy(void* dst, void const* src, std::size_t count, cudaMemcpyKind kind) {
  return runtime_call<index_of("cudaMemcpy")>([&] {
    transfer copy;
    if (auto const code = plan(dst, src, count, kind, copy); code != cudaSuccess) return code;
    return count == 0 ? cudaSuccess : copy_blocking(std::move(copy));
  });
}

cudaError_t cudaMemcpyAsync(void* dst, void const* src, std::size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return runtime_call<index_of("cudaMemcpyAsync")>([&](ordered_delay const& delay) {
    std::shared_ptr<pyxfer::hostrt::stream> on;
    if (auto const code = find_for_work(stream, on); code != cudaSuccess) return code;
    transfer copy;
    if (auto const code = plan(dst, src, count, kind, copy); code != cudaSuccess) return code;
    if (count == 0) return cudaSuccess;
    copy.asynchronous = true;
    auto const limit = on->idle() ? staged_limit : staged_limit_when_busy;
    auto const taken_along =
        copy.pageable && copy.kind == cudaMemcpyHostToDevice && copy.bytes <= limit;
    auto const waits = copy.pageable && !taken_along;
    if (taken_along) stage(copy);
    auto const arrival = submit(on, {std::move(copy)}, delay);
    return waits ? synchronize({arrival}) : cudaSuccess;
  });
}

cudaError_t cudaMemset(void* devPtr, int value, std::size_t count) {
  return runtime_call<index_of("cudaMemset")>([&] {
    if (count == 0) return cudaSuccess;
    if (!can_set(devPtr, count)) return cudaErrorInvalidValue;
    std::shared_ptr<pyxfer::hostrt::stream> on;
    if (auto const code = find_for_work(cudaStreamLegacy, on); code != cudaSuccess) return code;
    auto const done = queue_memset(on, {devPtr, value, count, false}, ordered_delay{0});
    auto const on_host = memory().place(devPtr, count) == placement::locked;
    return on_host ? synchronize({done}) : cudaSuccess;
  });
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, std::size_t count, cudaStream_t stream) {
  return runtime_call<index_of("cudaMemsetAsync")>([&](ordered_delay const& delay) {
    std::shared_ptr<pyxfer::hostrt::stream> on;
    if (auto const code = find_for_work(stream, on); code != cudaSuccess) return code;
    if (count == 0) return cudaSuccess;
    if (!can_set(devPtr, count)) return cudaErrorInvalidValue;
    queue_memset(on, {devPtr, value, count, true}, delay);
    return cudaSuccess;
  });
}
