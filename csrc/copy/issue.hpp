#pragma once

#include "copy/bench.hpp"
#include "copy/lane.hpp"

#include <cstddef>
#include <string>

namespace pyxfer {

/// How transfers are queued; the words are those of the documents.
enum class issue_mode {
  async,  ///< cudaMemcpyAsync on one stream
  split,  ///< each transfer divided over all streams of the bench
  batch   ///< all transfers of a window in one cudaMemcpyBatchAsync
};

[[nodiscard]] issue_mode issue_mode_of(std::string const& word);

/// One cudaMemcpy. From pageable memory it may return before the last byte has arrived.
void copy_blocking(lane const& along, std::size_t turn);

void copy_async(lane const& along, std::size_t turn, stream_view on);

/// Queues `count` transfers, beginning with slot `first`.
void issue(bench& streams, issue_mode mode, lane const& along, std::size_t first,
           std::size_t count);

}  // namespace pyxfer
