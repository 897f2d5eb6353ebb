#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "activity.hpp"
#include "injection.hpp"
#include "link.hpp"
#include "stream.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {

/// One validated copy.
struct transfer {
  void* to = nullptr;
  void const* from = nullptr;
  std::size_t bytes = 0;
  cudaMemcpyKind kind = cudaMemcpyDefault;
  /// One side is neither pinned nor registered, so the caller has to wait for the copy.
  bool pageable = false;
  /// The call was an asynchronous one.
  bool asynchronous = false;
  /// The kinds of memory that its record names.
  activity_memory source = activity_memory::unknown;
  activity_memory target = activity_memory::unknown;
  copy_path path;
  /// The copy of the source, if it was staged.
  std::shared_ptr<void const> staged;
};

/// Moves bytes in the modelled time of the path by two calls of `move_half`, with 0 and 1. Returns
/// the times of the stream's clock at which the copy began and ended. The latency is added if it is
/// the `first` of a submission.
activity_span move_modelled(std::size_t bytes, copy_path path, bool first, work_start const& start,
                            std::function<void(std::size_t)> const& move_half);

/// Validates a copy against the known memory, and fills in its kind. A copy of zero bytes is always
/// valid.
[[nodiscard]] cudaError_t plan(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind,
                               transfer& planned);

/// Copies the source of `planned`, so that the caller may change it.
void stage(transfer& planned);

/// Queues the copies as one task of the stream.
stream_point submit(std::shared_ptr<stream> const& on, std::vector<transfer> copies,
                    ordered_delay const& delay);

/// An asynchronous copy by either of the runtime's and the driver's calls.
cudaError_t queue_copy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind,
                       cudaStream_t stream, ordered_delay const& delay);

}  // namespace pyxfer::hostrt
