#pragma once

#include "cuda/event.hpp"
#include "cuda/stream.hpp"

#include <optional>

namespace pyxfer {

/// Around a drained device both clocks cover one span, and the events lie outside the host's
/// readings. Why a trial whose events say less must not be used; empty where they do not.
[[nodiscard]] char const* drained_fault(double elapsed_s, double wall_s) noexcept;

/// Two events around somebody else's work.
///
/// On a given stream they are recorded there. Without one the device is drained before and after,
/// and they are recorded on an idle stream of the bracket's own: events there are not ordered with
/// a framework's hidden streams, so the time between them is the host's, on the device's clock.
/// A given stream must not be in capture. Each end is one call, because every step between the
/// events is measured too. One thread at a time; only close() may be called by several.
class bracket {
 public:
  explicit bracket(int device);
  bracket(int device, stream_view on);

  void begin();
  void end();
  /// Whether the end has been passed; waits so long for it at most.
  [[nodiscard]] bool ended_within(double seconds) const;
  [[nodiscard]] double elapsed_s() const;

  void close();

 private:
  /// Before an end is recorded: drains the device where no stream was given.
  void prepare_end() const;

  CUcontext context_;
  std::optional<stream> own_;
  stream_view on_;
  event start_;
  event stop_;
};

}  // namespace pyxfer
