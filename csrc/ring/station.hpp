#pragma once

#include "cuda/event.hpp"
#include "cuda/stream.hpp"
#include "cuda/wait.hpp"
#include "ring/settings.hpp"
#include "ring/transfer.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace pyxfer {

/// What one thread of a transfer works with: a stream, and slots that it uses in turn. While it
/// fills one, the copy engine empties those that were filled before.
class station {
 public:
  /// The slots lie one after the other in page-locked memory.
  station(int device, std::uintptr_t slots, ring_settings const& made);

  /// Forgets the transfer before, and what it took.
  void prepare();
  /// Moves chunks until none is left, or the transfer is stopped.
  void work(transfer& shared);

  [[nodiscard]] bool has_issued() const noexcept { return issued_; }
  /// Chunks that went all the way: into the stream, or into the array.
  [[nodiscard]] std::size_t chunks() const noexcept { return chunks_; }
  [[nodiscard]] double waited_s() const noexcept { return waited_s_; }
  [[nodiscard]] double filled_s() const noexcept { return filled_s_; }

  /// Of what was issued. Later work on a stream waits for it ...
  void hold(stream_view waiting) const { last().hold(waiting); }
  /// ... or the caller; false when it has not ended so soon, or `stopped` is set.
  [[nodiscard]] bool wait(double seconds, std::atomic<bool> const* stopped) const;
  /// The same for a ring that ends. Throws `timeout_error`.
  void await_idle(patience const& limit) const;
  /// Whether an event tells of all that was issued.
  [[nodiscard]] bool is_settled() const noexcept { return settled_; }
  /// After an error: makes it so.
  void settle();

  void close();

 private:
  struct slot {
    std::uintptr_t address;
    event passed;  ///< the latest copy
  };

  void upload(transfer& shared);
  void download(transfer& shared);
  void issue(chunk const& part, transfer const& shared);
  [[nodiscard]] bool await(event const& passed, transfer const& shared);
  template <typename Copy>
  void time_fill(Copy const& copy);
  [[nodiscard]] event const& last() const;

  stream stream_;
  std::vector<slot> slots_;
  std::size_t turn_{};  ///< copies issued so far, which tells the next slot
  bool settled_{true};
  bool issued_{};
  std::size_t chunks_{};
  double waited_s_{};
  double filled_s_{};
};

}  // namespace pyxfer
