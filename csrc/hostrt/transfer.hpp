#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "activity.hpp"
#include "control.hpp"
#include "injection.hpp"
#include "stream.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {

/// When a copy uses an engine.
struct crossing {
  steady::time_point begin;
  steady::time_point end;
};

/// The modelled link: each device has one copy engine per direction, which does one copy at a time.
class modelled_link {
 public:
  void set(direction_model h2d, direction_model d2h);

  /// Reserves the engine of that direction from `ready` on; returns nothing if the direction is not
  /// modelled. The latency is added if the copy is the `first` of a submission.
  [[nodiscard]] std::optional<crossing> occupy(int device, cudaMemcpyKind kind, std::size_t bytes,
                                               bool first, steady::time_point ready);

 private:
  struct direction {
    direction_model model{0, 0};
    std::array<steady::time_point, max_devices> free_at{};
  };

  std::mutex mutex_;
  direction h2d_;
  direction d2h_;
};

[[nodiscard]] modelled_link& link();

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
  copy_sides sides;
  /// The copy of the source, if it was staged.
  std::shared_ptr<void const> staged;
};

/// Validates a copy against the known memory, and fills in its kind. A copy of zero bytes is always
/// valid.
[[nodiscard]] cudaError_t plan(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind,
                               transfer& planned);

/// Copies the source of `planned`, so that the caller may change it.
void stage(transfer& planned);

/// Queues the copies as one task of the stream.
stream_point submit(std::shared_ptr<stream> const& on, std::vector<transfer> copies,
                    ordered_delay const& delay);

/// Records the copies of one submission. Like the real driver for a batch, it merges consecutive
/// copies between the same kinds of memory into one record, which has their number.
class copy_recorder {
 public:
  explicit copy_recorder(activity_place const& where) noexcept : where_{where} {}
  ~copy_recorder() { finish(); }
  copy_recorder(copy_recorder const&) = delete;
  copy_recorder& operator=(copy_recorder const&) = delete;
  copy_recorder(copy_recorder&&) = delete;
  copy_recorder& operator=(copy_recorder&&) = delete;

  void add(transfer const& copy, activity_span const& when) noexcept;

 private:
  void finish() noexcept;

  activity_place where_;
  copy_sides sides_;
  activity_span when_;
  bool asynchronous_ = false;
  std::size_t bytes_ = 0;
  std::size_t copies_ = 0;
};

}  // namespace pyxfer::hostrt
