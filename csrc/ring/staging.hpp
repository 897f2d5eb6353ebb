#pragma once

#include "cuda/memory.hpp"
#include "ring/chunk_mover.hpp"
#include "ring/crew.hpp"
#include "ring/settings.hpp"
#include "ring/transfer.hpp"

#include <atomic>

namespace pyxfer {

/// The page-locked slots, the copies and the threads of a ring. Only the thread whose transfer is
/// at the front of the queue calls it, with the ring's context current.
class staging {
 public:
  staging(int device, CUcontext context, ring_settings const& made, conversion_kernels& converting);

  /// Moves the array. After an error all copies that were issued have ended, unless the transfer
  /// was cancelled and its copies wait for other work of the device.
  [[nodiscard]] staged run(staging_request const& request, std::atomic<bool>& cancelled);

  /// Waits until the device has left the slots; false after `seconds`.
  [[nodiscard]] bool await_idle(double seconds) const { return mover_.await_idle(seconds); }
  /// Whether the device may read pageable memory after the call for a copy has returned.
  [[nodiscard]] bool reads_pageable_memory() const noexcept { return reads_pageable_memory_; }
  /// Wakes the threads for a transfer that comes soon. Any thread may call it.
  void alert() noexcept { crew_.alert(); }
  /// Call it after the device has left the slots.
  void close();

 private:
  enum class manner { through_slots, by_the_driver, direct, direct_and_late };

  [[nodiscard]] static manner manner_of(staging_request const& request, chunk_plan const& cut);
  [[nodiscard]] bool move(transfer& shared, manner how, bool wait);
  [[nodiscard]] bool move_chunks(transfer& shared, bool wait);
  [[nodiscard]] bool move_directly(transfer& shared, bool wait, bool late);
  void end_copies(staging_request const& request, manner how,
                  std::atomic<bool> const& cancelled) noexcept;

  ring_settings settings_;
  bool reads_pageable_memory_;
  host_buffer slots_;
  chunk_mover mover_;
  crew crew_;
};

}  // namespace pyxfer
