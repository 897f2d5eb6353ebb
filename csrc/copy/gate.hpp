#pragma once

#include "cuda/stream.hpp"

#include <memory>

namespace pyxfer {

/// Holds a stream until everything that is to be timed has been queued, so that the time between
/// two events contains no work of the host. It opens by itself after `timeout_s`; the sample is
/// then invalid.
class gate {
 public:
  gate(stream_view on, double timeout_s);
  ~gate() { open(); }
  gate(gate const&) = delete;
  gate& operator=(gate const&) = delete;
  gate(gate&&) = delete;
  gate& operator=(gate&&) = delete;

  void open() noexcept;
  /// Valid after work behind the gate has finished.
  [[nodiscard]] bool timed_out() const noexcept;

 private:
  struct state;
  static void hold(void* shared_state);

  std::shared_ptr<state> state_;
};

}  // namespace pyxfer
