#pragma once

#include "copy/bench.hpp"
#include "copy/lane.hpp"

#include <cstddef>
#include <string>

namespace pyxfer {

/// How transfers are put into the streams; the words are those of the documents.
enum class issue_mode {
  async,  ///< cudaMemcpyAsync on one stream
  split,  ///< each transfer divided over all streams of the bench
  batch   ///< all transfers of a window in one cudaMemcpyBatchAsync
};

[[nodiscard]] issue_mode issue_mode_of(std::string const& word);

/// One cudaMemcpy; returns when the runtime says so, which for pageable memory may be before the
/// last byte has arrived.
void copy_blocking(lane const& along, std::size_t turn);

void copy_async(lane const& along, std::size_t turn, stream_view on);

/// Queue `count` transfers, beginning with slot `first`.
void issue(bench& with, issue_mode mode, lane const& along, std::size_t first, std::size_t count);

}  // namespace pyxfer
