#pragma once

#include "cuda/host_buffer.hpp"
#include "ring/cancels.hpp"
#include "ring/conveyor.hpp"
#include "ring/crew.hpp"
#include "ring/settings.hpp"
#include "ring/staged.hpp"
#include "ring/transfer.hpp"

#include <cstdint>

namespace pyxfer {

/// All that moves bytes in a ring, for one transfer at a time: page-locked slots, what takes turns
/// in them, and the threads. The context that it is made with is to be current in its calls.
class staging {
 public:
  staging(int device, CUcontext context, ring_settings const& made);

  /// Moves it, unless somebody cancelled since so many cancels. After an error all that was issued
  /// has ended, except where a cancelled transfer's copies wait for other work of the device.
  [[nodiscard]] staged run(staging_request const& request, cancels& by, std::uint64_t before);

  /// Returns when the device has left the slots. Throws `timeout_error`.
  void await_idle(double seconds) const;
  /// When it has.
  void close();

 private:
  enum class manner { through_slots, by_the_driver, from_where_it_lies };

  [[nodiscard]] static manner manner_of(staging_request const& request, chunk_plan const& cut);
  [[nodiscard]] bool move(transfer& shared, manner how, bool wait);
  [[nodiscard]] bool move_chunks(transfer& shared, bool wait);
  [[nodiscard]] bool move_directly(transfer& shared, bool wait);
  void give_up(staging_request const& request, cancels& by, std::uint64_t before) noexcept;

  ring_settings settings_;
  host_buffer slots_;
  conveyor conveyor_;
  crew crew_;
};

}  // namespace pyxfer
