#pragma once

#include <cuda.h>
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

/// Rows that are equally far apart on each side.
struct row_copy {
  void* to;
  void const* from;
  std::size_t to_pitch;
  std::size_t from_pitch;
  std::size_t width;
  std::size_t rows;
};

/// Queues them as one task of the stream.
cudaError_t queue_rows(row_copy const& order, cudaStream_t stream, ordered_delay const& delay);

/// The driver's call since CUDA 12.8; CUDA 13 has another one without `failed`, under the same
/// name.
CUresult memcpy_batch_async(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes,
                            std::size_t count, CUmemcpyAttributes* attributes,
                            std::size_t* first_of, std::size_t attribute_count, std::size_t* failed,
                            CUstream stream);

}  // namespace pyxfer::hostrt
