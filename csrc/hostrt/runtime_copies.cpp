#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "activity.hpp"
#include "device.hpp"
#include "entry.hpp"
#include "link.hpp"
#include "memory.hpp"
#include "peer.hpp"
#include "stream_registry.hpp"
#include "transfer.hpp"

using namespace pyxfer::hostrt;

namespace {

/// Up to this size the driver copies a pageable source before the call returns, according to the
/// documentation.
constexpr std::size_t staged_limit = std::size_t{64} << 10U;
/// The same for a busy stream: an H100 with driver 580 returned at once for 1 MiB, and waited for
/// 64 MiB.
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

/// Whether a copy between two devices goes through host memory.
bool crosses_host(copy_path path) {
  return path.from >= 0 && path.to >= 0 && !copies_directly(path.from, path.to);
}

struct memset_order {
  void* to;
  int value;
  std::size_t bytes;
  bool asynchronous;
};

void record_memset(memset_order const& order, activity_place const& where,
                   activity_span const& when) {
  auto const locked = memory().place(order.to, order.bytes) == placement::locked;
  auto raw =
      work_record<pyxfer::cupti::set_activity>(pyxfer::cupti::activity_kind::set, where, when);
  raw.bytes = order.bytes;
  raw.memory =
      static_cast<std::uint16_t>(locked ? activity_memory::pinned : activity_memory::device);
  raw.flags = order.asynchronous ? pyxfer::cupti::asynchronous : 0;
  push(raw);
}

stream_point queue_memset(std::shared_ptr<stream> const& on, memset_order const& order,
                          ordered_delay const& delay) {
  activity_place const where{on->device(), on->id(), this_thread().correlation};
  auto work = [=](work_start const& start) {
    delay.serve(start.ready);
    auto const set = [&] { std::memset(host_view(order.to), order.value, order.bytes); };
    auto const begin = steady::now();
    touch_memory(start.epoch, set);
    auto const end = steady::now();
    if (where.correlation != 0 && is_current(start.epoch)) {
      record_memset(order, where, {begin, end});
    }
    return end;
  };
  return streams().enqueue(on, std::move(work), {}, engine::kernels);
}

bool can_set(void const* address, std::size_t bytes) {
  auto const where = memory().place(address, bytes);
  return where == placement::device || where == placement::locked;
}

}  // namespace

namespace pyxfer::hostrt {

cudaError_t queue_copy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind,
                       cudaStream_t stream, ordered_delay const& delay) {
  std::shared_ptr<pyxfer::hostrt::stream> on;
  if (auto const code = find_for_work(stream, on); code != cudaSuccess) return code;
  hostrt::transfer copy;
  if (auto const code = plan(to, from, bytes, kind, copy); code != cudaSuccess) return code;
  if (bytes == 0) return cudaSuccess;
  copy.asynchronous = true;
  // Two H100 with driver 580: the call waits for the earlier work of the stream.
  if (crosses_host(copy.path)) {
    if (auto const code = synchronize(streams().pending(on)); code != cudaSuccess) return code;
  }
  auto const limit = on->idle() ? staged_limit : staged_limit_when_busy;
  auto const is_staged =
      copy.pageable && copy.kind == cudaMemcpyHostToDevice && copy.bytes <= limit;
  auto const waits = copy.pageable && !is_staged;
  if (is_staged) stage(copy);
  auto const arrival = submit(on, {std::move(copy)}, delay);
  return waits ? synchronize({arrival}) : cudaSuccess;
}

}  // namespace pyxfer::hostrt

cudaError_t cudaMemcpy(void* dst, void const* src, std::size_t count, cudaMemcpyKind kind) {
  return runtime_call<index_of("cudaMemcpy")>([&] {
    transfer copy;
    if (auto const code = plan(dst, src, count, kind, copy); code != cudaSuccess) return code;
    return count == 0 ? cudaSuccess : copy_blocking(std::move(copy));
  });
}

cudaError_t cudaMemcpyAsync(void* dst, void const* src, std::size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return runtime_call<index_of("cudaMemcpyAsync")>(
      [&](ordered_delay const& delay) { return queue_copy(dst, src, count, kind, stream, delay); });
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

namespace {

/// The arguments of both versions of the call.
struct batch {
  void* const* to;
  void const* const* from;
  std::size_t const* bytes;
  std::size_t count;
  cudaMemcpyAttributes const* attributes;
  std::size_t const* first_of;
  std::size_t attribute_count;
};

bool is_access_order(cudaMemcpySrcAccessOrder order) {
  return order == cudaMemcpySrcAccessOrderStream ||
         order == cudaMemcpySrcAccessOrderDuringApiCall || order == cudaMemcpySrcAccessOrderAny;
}

bool has_valid_attributes(batch const& wanted) {
  if (wanted.attributes == nullptr || wanted.first_of == nullptr) return false;
  if (wanted.attribute_count == 0 || wanted.attribute_count > wanted.count) return false;
  auto const* const begin = wanted.first_of;
  auto const* const end = begin + wanted.attribute_count;
  auto const increasing = std::adjacent_find(begin, end, std::greater_equal<>{}) == end;
  if (*begin != 0 || !increasing || *(end - 1) >= wanted.count) return false;
  return std::all_of(
      wanted.attributes, wanted.attributes + wanted.attribute_count,
      [](auto const& attribute) { return is_access_order(attribute.srcAccessOrder); });
}

bool must_read_now(batch const& wanted) {
  return std::any_of(wanted.attributes, wanted.attributes + wanted.attribute_count,
                     [](cudaMemcpyAttributes const& attribute) {
                       return attribute.srcAccessOrder == cudaMemcpySrcAccessOrderDuringApiCall;
                     });
}

cudaError_t plan_all(batch const& wanted, std::vector<transfer>& copies, std::size_t& failed) {
  for (std::size_t i = 0; i < wanted.count; ++i) {
    transfer copy;
    auto const code = plan(wanted.to[i], wanted.from[i], wanted.bytes[i], cudaMemcpyDefault, copy);
    if (code != cudaSuccess) {
      failed = i;
      return code;
    }
    copy.asynchronous = true;
    if (copy.bytes != 0) copies.push_back(std::move(copy));
  }
  return cudaSuccess;
}

cudaError_t queue_batch(batch const& wanted, cudaStream_t stream, ordered_delay const& delay,
                        std::size_t& failed) {
  if (wanted.to == nullptr || wanted.from == nullptr || wanted.bytes == nullptr) {
    return cudaErrorInvalidValue;
  }
  // The documentation excludes the legacy stream, under either of its names.
  if (stream == nullptr || stream == cudaStreamLegacy) return cudaErrorInvalidValue;
  if (wanted.count == 0 || !has_valid_attributes(wanted)) return cudaErrorInvalidValue;
  std::shared_ptr<pyxfer::hostrt::stream> on;
  if (auto const code = find_for_work(stream, on); code != cudaSuccess) return code;
  std::vector<transfer> copies;
  if (auto const code = plan_all(wanted, copies, failed); code != cudaSuccess) return code;
  auto const waits =
      must_read_now(wanted) ||
      std::any_of(copies.begin(), copies.end(), [](transfer const& copy) { return copy.pageable; });
  spend_time_of_copies(copies.size());
  auto const arrival = submit(on, std::move(copies), delay);
  return waits ? synchronize({arrival}) : cudaSuccess;
}

/// What the attributes of a batch are in the driver's call.
static_assert(sizeof(CUmemcpyAttributes) == sizeof(cudaMemcpyAttributes));

cudaError_t run_batch(batch const& wanted, std::size_t* failIdx, cudaStream_t stream) {
  auto failed = SIZE_MAX;
  auto const result = runtime_call<index_of("cudaMemcpyBatchAsync")>(
      [&](ordered_delay const& delay) { return queue_batch(wanted, stream, delay, failed); });
  if (result != cudaSuccess && failIdx != nullptr) *failIdx = failed;
  return result;
}

}  // namespace

namespace pyxfer::hostrt {

// NOLINTBEGIN(readability-non-const-parameter): the signature is CUDA's
CUresult memcpy_batch_async(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes,
                            std::size_t count, CUmemcpyAttributes* attributes,
                            std::size_t* first_of, std::size_t attribute_count, std::size_t* failed,
                            CUstream stream) {
  auto failed_at = SIZE_MAX;
  batch const wanted{reinterpret_cast<void**>(to),
                     reinterpret_cast<void const**>(from),
                     bytes,
                     count,
                     reinterpret_cast<cudaMemcpyAttributes*>(attributes),
                     first_of,
                     attribute_count};
  auto const result = driver_call<index_of("cuMemcpyBatchAsync")>(
      [&](ordered_delay const& delay) { return queue_batch(wanted, stream, delay, failed_at); });
  if (result != CUDA_SUCCESS && failed != nullptr) { *failed = failed_at; }
  return result;
}
// NOLINTEND(readability-non-const-parameter)

cudaError_t queue_rows(row_copy const& order, cudaStream_t stream, ordered_delay const& delay) {
  if (order.rows == 0 || order.width == 0) return cudaSuccess;
  if (order.to_pitch < order.width || order.from_pitch < order.width)
    return cudaErrorInvalidPitchValue;
  std::shared_ptr<pyxfer::hostrt::stream> on;
  if (auto const code = find_for_work(stream, on); code != cudaSuccess) return code;
  std::vector<transfer> copies;
  for (std::size_t row = 0; row < order.rows; ++row) {
    transfer copy;
    auto const code = plan(static_cast<char*>(order.to) + row * order.to_pitch,
                           static_cast<char const*>(order.from) + row * order.from_pitch,
                           order.width, cudaMemcpyDefault, copy);
    if (code != cudaSuccess) return code;
    copy.asynchronous = true;
    copies.push_back(std::move(copy));
  }
  auto const waits = copies.front().pageable;
  auto const arrival = submit(on, std::move(copies), delay);
  return waits ? synchronize({arrival}) : cudaSuccess;
}

}  // namespace pyxfer::hostrt

#if CUDART_VERSION >= 13000
cudaError_t cudaMemcpyBatchAsync(void* const* dsts, void const* const* srcs,
                                 std::size_t const* sizes, std::size_t count,
                                 cudaMemcpyAttributes* attrs, std::size_t* attrsIdxs,
                                 std::size_t numAttrs, cudaStream_t stream) {
  return run_batch({dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs}, nullptr, stream);
}
#else
// NOLINTBEGIN(readability-non-const-parameter): the signature is CUDA's
cudaError_t cudaMemcpyBatchAsync(void** dsts, void** srcs, std::size_t* sizes, std::size_t count,
                                 cudaMemcpyAttributes* attrs, std::size_t* attrsIdxs,
                                 std::size_t numAttrs, std::size_t* failIdx, cudaStream_t stream) {
  return run_batch({dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs}, failIdx, stream);
}
// NOLINTEND(readability-non-const-parameter)
#endif
