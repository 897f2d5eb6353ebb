#pragma once

#include "cuda/stream.hpp"
#include "cuda/wait.hpp"
#include "ring/conversion.hpp"
#include "ring/settings.hpp"
#include "ring/slot_order.hpp"
#include "ring/transfer.hpp"

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace pyxfer {

// clang-format off
/// Moves the chunks of one transfer at a time through page-locked slots, with several threads. The
/// thread that holds `polling_` polls the copies and issues new ones, because the driver serves one
/// thread at a time. The other threads continue to fill or empty slots.
///
/// | field                                      | written by               | read by    | ordered by                      |
/// |--------------------------------------------|--------------------------|------------|---------------------------------|
/// | copies_, begun_, ended_, settled_, issued_ | the holder of polling_   | the same   | polling_, while the crew works  |
/// | follows_, converted_                       | the holder of polling_   | the same   | polling_, while the crew works  |
/// | the same                                   | the caller               | the caller | the crew has returned           |
/// | totals_                                    | every thread, at its end | the caller | summing_; the crew has returned |
// clang-format on
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): apart from what others write
class chunk_mover {
 public:
  /// A cancelled transfer waits for the pieces of its array that are under way. Three of them take
  /// 8 ms at 25 GB/s. The start of a copy takes less than 0.2 % of the time of a piece.
  static constexpr std::size_t usual_piece = std::size_t{64} << 20U;
  /// Bytes that a kernel converts at least, until the last ones. The time of the last kernel is not
  /// hidden, and each costs the thread that issues copies some microseconds.
  static constexpr std::size_t converted_piece = std::size_t{2} << 20U;

  /// `slots` is the address of the first slot; the others follow it in page-locked memory.
  chunk_mover(int device, std::uintptr_t slots, ring_settings const& made,
              conversion_kernels& converting);

  /// Begins a transfer of that many chunks, after the threads of the previous one have returned.
  /// Its copies may still be under way.
  void prepare(transfer& next, std::size_t chunks);
  /// In a thread of the crew: moves chunks until none is left, or the transfer is stopped.
  void run_as_crew(transfer& shared);
  /// In the caller's thread: does the same, and polls the copies. True when the copies of all
  /// chunks were issued, or with `wait` have ended; false if the transfer is stopped.
  [[nodiscard]] bool run_as_caller(transfer& shared, bool wait);
  /// In the caller's thread: waits for the work that the copies have to wait for; false if the
  /// transfer is stopped.
  [[nodiscard]] static bool await_begin(transfer& shared);
  /// In the caller's thread: copies between the device and the array itself, without the slots.
  /// True when all copies were issued, or with `wait` have ended; false if the transfer is stopped.
  [[nodiscard]] bool copy_direct(transfer& shared, bool wait,
                                 std::size_t piece_bytes = usual_piece);
  /// Polls the copies until all were issued, or with `wait` have ended; false if the transfer is
  /// stopped.
  [[nodiscard]] bool finish(transfer& shared, bool wait);
  /// Valid after the threads have returned.
  [[nodiscard]] staged totals() const;

  [[nodiscard]] bool has_issued() const noexcept { return issued_ != 0; }
  /// Makes later work of a stream wait for the copies that were issued, and for their kernels.
  void hold(stream_view waiting) const;
  /// Records an event behind the copies that were issued.
  void record_in(arrival& arrives) const { arrives.record(stream_.view()); }
  /// Waits for the copies that were issued, and for their kernels; false after `seconds`, or when
  /// `cancelled` is set.
  [[nodiscard]] bool wait(double seconds, std::atomic<bool> const* cancelled) const;
  /// Waits until the copies and their kernels have ended; false after `seconds`.
  [[nodiscard]] bool await_idle(double seconds) const;
  /// Whether an event was recorded behind the last copy.
  [[nodiscard]] bool is_settled() const noexcept { return settled_; }
  /// After an error: records that event if it is missing.
  void settle();

  void close();

 private:
  struct copy {
    event passed;
    std::uint64_t end;  ///< number of the first chunk after it
  };
  /// The kernels that follow copies, of the transfers that have some.
  struct followers {
    stream on;
    event ended;
    bool are_used{false};  ///< by this transfer
  };
  enum class role { caller, crew };

  void move_chunks(transfer& shared, std::size_t most, role own_role, staged& own);
  [[nodiscard]] bool move_chunk(transfer& shared, std::size_t index, role own_role, staged& own);
  void add(staged const& own);
  [[nodiscard]] bool await_slot(std::uint64_t number, transfer& shared, role own_role,
                                double& waited_s);
  void try_poll_copies(transfer const& shared);
  bool poll_copies(transfer const& shared);
  bool retire_copies();
  [[nodiscard]] bool await_copies_under_way(std::size_t most, transfer& shared);
  void issue(slot_order::run const& taken, transfer const& shared);
  void copy_between(std::uintptr_t host, chunk const& part, transfer const& shared,
                    std::uint64_t end);
  void convert(chunk const& part, transfer const& shared);
  [[nodiscard]] bool has_converted() const;
  void record(std::uint64_t end);
  [[nodiscard]] bool is_idle() const;
  [[nodiscard]] std::size_t under_way() const noexcept { return begun_ - ended_; }
  [[nodiscard]] event const& last() const { return copies_[(begun_ - 1) % copies_.size()].passed; }

  std::uintptr_t slots_;
  std::size_t chunk_bytes_;
  slot_order order_;
  stream stream_;
  std::vector<copy> copies_;
  conversion_kernels* converting_;

  alignas(cache_line) std::mutex polling_;
  std::size_t begun_{};  ///< number of copies with an event
  std::size_t ended_{};  ///< number of those that are known to have ended
  bool settled_{true};
  std::size_t issued_{};  ///< number of copies of this transfer
  std::optional<followers> follows_;
  std::size_t converted_{};  ///< bytes of this transfer whose kernels are queued

  std::mutex summing_;
  staged totals_{};
};

}  // namespace pyxfer
