#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "activity.hpp"
#include "delay.hpp"
#include "stream.hpp"

namespace pyxfer::hostrt {

/// One checked copy.
struct transfer {
  void* to = nullptr;
  void const* from = nullptr;
  std::size_t bytes = 0;
  cudaMemcpyKind kind = cudaMemcpyDefault;
  /// One side is neither pinned nor registered, so that the caller has to wait for the copy.
  bool pageable = false;
  /// Asked for with a call that need not wait for it.
  bool asynchronous = false;
  copy_sides sides;
  /// Where the source was staged, if it was.
  std::shared_ptr<void const> staged;
};

/// Checks a copy against the known memory and fills in what kind it is. With zero bytes everything
/// is fine.
[[nodiscard]] cudaError_t plan(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind,
                               transfer& planned);

/// Replaces the source of `planned` by a copy of it, so that the caller may reuse his.
void stage(transfer& planned);

/// Queues the copies as one piece of work.
stream_point submit(std::shared_ptr<stream> const& on, std::vector<transfer> copies,
                    ordered_delay const& delay);

}  // namespace pyxfer::hostrt
