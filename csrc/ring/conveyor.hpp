#pragma once

#include "cuda/event.hpp"
#include "cuda/stream.hpp"
#include "cuda/wait.hpp"
#include "ring/belt.hpp"
#include "ring/settings.hpp"
#include "ring/staged.hpp"
#include "ring/transfer.hpp"

#include <cstdint>
#include <mutex>
#include <vector>

namespace pyxfer {

/// Moves the chunks of one transfer at a time through page-locked slots, by as many threads as
/// work. The caller looks after the copies, or whoever has done his part of a slot; so does who
/// waits for one. It is one thread at a time, because the driver serves no more, and the others go
/// on.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): apart from what others write
class conveyor {
 public:
  /// The slots lie one after the other in page-locked memory.
  conveyor(int device, std::uintptr_t slots, ring_settings const& made);

  /// Forgets the transfer before, and what it took.
  void prepare(transfer const& next, std::size_t chunks);
  /// In each thread but the caller's: moves chunks until none is left or the transfer is stopped.
  void work(transfer& shared);
  /// In the caller's: the same, and looks after the copies. Whether every chunk is on its way, or
  /// with `wait` has arrived; false where the transfer is stopped.
  [[nodiscard]] bool lead(transfer& shared, bool wait);
  /// In place of that: one copy between the device and the array where it lies, past the slots.
  void pass_by(transfer const& shared);
  /// Looks after the copies until that can be said.
  [[nodiscard]] bool finish(transfer const& shared, bool wait);
  [[nodiscard]] staged taken() const;  ///< when the threads are back

  [[nodiscard]] bool has_issued() const noexcept { return issued_ != 0; }
  /// Of what was issued. Later work on a stream waits for it ...
  void hold(stream_view waiting) const { last().hold(waiting); }
  /// ... or the caller; false when it has not ended so soon, or `stopped` is set.
  [[nodiscard]] bool wait(double seconds, std::atomic<bool> const* stopped) const;
  /// The same for a ring that ends. Throws `timeout_error`.
  void await_idle(patience const& limit) const;
  /// Whether an event tells of all that was issued.
  [[nodiscard]] bool is_settled() const noexcept { return settled_; }
  /// After an error: makes it so, if it is not.
  void settle();

  void close();

 private:
  struct copy {
    event passed;
    std::uint64_t end;  ///< number of the first chunk behind it
  };

  void move_some(transfer& shared, std::size_t most, staged& own);
  void add(staged const& own);
  [[nodiscard]] bool await(std::uint64_t number, transfer const& shared, double& waited_s);
  void drive(transfer const& shared);
  bool look_after(transfer const& shared);
  bool retire();
  [[nodiscard]] bool leave(std::size_t copies, transfer const& shared);
  void issue(belt::run const& taken, transfer const& shared);
  void copy_between(std::uintptr_t host, chunk const& part, transfer const& shared,
                    std::uint64_t end);
  void record(std::uint64_t end);
  [[nodiscard]] std::size_t under_way() const noexcept { return begun_ - ended_; }
  [[nodiscard]] event const& last() const { return copies_[(begun_ - 1) % copies_.size()].passed; }

  std::uintptr_t slots_;
  std::size_t chunk_bytes_;
  belt belt_;
  stream stream_;
  std::vector<copy> copies_;

  alignas(cache_line) std::mutex driving_;  ///< of all that follows, as long as threads are at work
  std::size_t begun_{};                     ///< copies with an event
  std::size_t ended_{};                     ///< of which so many are known to have ended
  bool settled_{true};
  std::size_t issued_{};  ///< copies of this transfer

  std::mutex summing_;
  staged taken_{};
};

}  // namespace pyxfer
