#include "copy/issue.hpp"

#include "cuda/error.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace pyxfer {
namespace {

cudaMemcpyKind kind_of(lane const& along) {
  return along.way == direction::h2d ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
}

/// Parts are multiples of 4 KiB, because a copy engine is slower from an unaligned address.
constexpr std::size_t part_alignment = 4096;

void copy_split(bench& streams, lane const& along, std::size_t turn) {
  auto const width = streams.width();
  auto const even = (along.bytes + width - 1) / width;
  auto const part = (even + part_alignment - 1) / part_alignment * part_alignment;
  auto* const to = static_cast<char*>(along.destination(turn));
  auto const* const from = static_cast<char const*>(along.source(turn));
  for (std::size_t i = 0; i < width && i * part < along.bytes; ++i) {
    auto const bytes = std::min(part, along.bytes - i * part);
    PYXFER_TRY(cudaMemcpyAsync(to + i * part, from + i * part, bytes, kind_of(along),
                               streams.on(i).handle()));
  }
}

void copy_batch(bench& streams, lane const& along, std::size_t first, std::size_t count) {
  std::vector<void*> to(count);
  std::vector<void*> from(count);
  std::vector<std::size_t> sizes(count, along.bytes);
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = along.destination(first + i);
    from[i] = along.source(first + i);
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t from_index = 0;
#if CUDART_VERSION >= 13000
  PYXFER_TRY(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count, &attributes,
                                  &from_index, 1, streams.on(0).handle()));
#else
  std::size_t failed_at = 0;
  PYXFER_TRY(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count, &attributes,
                                  &from_index, 1, &failed_at, streams.on(0).handle()));
#endif
}

}  // namespace

issue_mode issue_mode_of(std::string const& word) {
  if (word == "async") { return issue_mode::async; }
  if (word == "split") { return issue_mode::split; }
  if (word == "batch") { return issue_mode::batch; }
  throw std::invalid_argument("unknown way to issue copies: \"" + word + "\"");
}

void copy_blocking(lane const& along, std::size_t turn) {
  PYXFER_TRY(cudaMemcpy(along.destination(turn), along.source(turn), along.bytes, kind_of(along)));
}

void copy_async(lane const& along, std::size_t turn, stream_view on) {
  PYXFER_TRY(cudaMemcpyAsync(along.destination(turn), along.source(turn), along.bytes,
                             kind_of(along), on.handle()));
}

void issue(bench& streams, issue_mode mode, lane const& along, std::size_t first,
           std::size_t count) {
  if (count == 0) { return; }
  if (mode == issue_mode::batch) {
    copy_batch(streams, along, first, count);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (mode == issue_mode::split) {
      copy_split(streams, along, first + i);
    } else {
      copy_async(along, first + i, streams.on(0));
    }
  }
}

}  // namespace pyxfer
