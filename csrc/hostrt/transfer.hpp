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

/// When a copy has an engine to itself.
struct crossing {
  steady::time_point begin;
  steady::time_point end;
};

/// The modelled link: one copy engine a device and direction, each doing one copy after the other.
class modelled_link {
 public:
  void set(direction_model h2d, direction_model d2h);

  /// Reserves the engine of that direction from `ready` on; nothing where the direction is not
  /// modelled. `first` of a submission bears its latency.
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

/// Records the copies of one submission. Copies alike that follow one another are one record with
/// their number, as the real driver merges those of a batch.
class told_copies {
 public:
  explicit told_copies(activity_place const& where) noexcept : where_{where} {}
  ~told_copies() { finish(); }
  told_copies(told_copies const&) = delete;
  told_copies& operator=(told_copies const&) = delete;
  told_copies(told_copies&&) = delete;
  told_copies& operator=(told_copies&&) = delete;

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
