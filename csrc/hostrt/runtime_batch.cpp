#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "entry.hpp"
#include "stream_calls.hpp"
#include "stream_registry.hpp"
#include "synchronize.hpp"
#include "transfer.hpp"

using namespace pyxfer::hostrt;

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
  return std::all_of(wanted.attributes, wanted.attributes + wanted.attribute_count,
                     [](auto const& each) { return is_access_order(each.srcAccessOrder); });
}

bool must_read_now(batch const& wanted) {
  return std::any_of(wanted.attributes, wanted.attributes + wanted.attribute_count,
                     [](cudaMemcpyAttributes const& each) {
                       return each.srcAccessOrder == cudaMemcpySrcAccessOrderDuringApiCall;
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
  auto const arrival = submit(on, std::move(copies), delay);
  return waits ? synchronize({arrival}) : cudaSuccess;
}

cudaError_t run_batch(batch const& wanted, std::size_t* failIdx, cudaStream_t stream) {
  auto failed = SIZE_MAX;
  auto const result = runtime_call<index_of("cudaMemcpyBatchAsync")>(
      [&](ordered_delay const& delay) { return queue_batch(wanted, stream, delay, failed); });
  if (result != cudaSuccess && failIdx != nullptr) *failIdx = failed;
  return result;
}

}  // namespace

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
