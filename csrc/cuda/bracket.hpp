#pragma once

#include "cuda/stream.hpp"

#include <optional>

namespace pyxfer {

/// Checks a trial on a drained device. The events are recorded outside the host's readings, so
/// their time must not be shorter. Returns why the trial must not be used, or an empty string.
[[nodiscard]] char const* drained_fault(double elapsed_s, double wall_s) noexcept;

/// Two events around work of the caller.
///
/// With a stream, the events are recorded on it; it must not be captured into a graph. Without one,
/// the device is drained before and after the work, and the events are recorded on the bracket's
/// own idle stream. They are not ordered with a framework's hidden streams, so the time between
/// them is the host's time, measured by the device's clock. `begin` and `end` are single calls,
/// because every step between the events is measured too. Only close() may be called by several
/// threads at a time.
class bracket {
 public:
  explicit bracket(int device);
  bracket(int device, stream_view on);

  void begin();
  void end();
  /// Waits at most `seconds` for the end; returns whether the device has passed it.
  [[nodiscard]] bool ended_within(double seconds) const;
  [[nodiscard]] double elapsed_s() const;

  void close();

 private:
  /// Called before an event is recorded: drains the device, or refuses a captured stream.
  void prepare_end() const;

  CUcontext context_;
  std::optional<stream> own_;
  stream_view on_;
  event start_;
  event stop_;
};

}  // namespace pyxfer
