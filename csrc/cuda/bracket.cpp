#include "cuda/bracket.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"
#include "cuda/wait.hpp"

namespace pyxfer {
namespace {

/// The resolution of the event clock, plus the time between reading the host's clock and the call
/// next to it.
constexpr double clock_slack_s = 1.5e-6;
/// For long times: less than the precision that a measurement requires.
constexpr double clock_slack = 0.005;

}  // namespace

char const* drained_fault(double elapsed_s, double wall_s) noexcept {
  return elapsed_s < wall_s * (1 - clock_slack) - clock_slack_s
             ? "the device stamped the first event late"
             : "";
}

bracket::bracket(int device)
    : context_{primary_context(device)},
      own_{std::in_place, device},
      on_{own_->view()},
      start_{device},
      stop_{device} {}

bracket::bracket(int device, stream_view on)
    : context_{primary_context(device)}, on_{on}, start_{device}, stop_{device} {}

void bracket::begin() {
  note_process();
  context_guard const guard{context_};
  prepare_end();
  start_.record(on_);
}

void bracket::end() {
  context_guard const guard{context_};
  prepare_end();
  stop_.record(on_);
}

void bracket::prepare_end() const {
  if (own_) {
    PYXFER_TRY(driver().cuCtxSynchronize());
  } else {
    require_no_capture(on_);
  }
}

bool bracket::ended_within(double seconds) const {
  capture_relaxation const relaxed;
  return wait_for(stop_, seconds);
}

double bracket::elapsed_s() const {
  capture_relaxation const relaxed;
  return stop_.seconds_since(start_);
}

void bracket::close() {
  closing all;
  all.close(start_);
  all.close(stop_);
  if (own_) { all.close(*own_); }
  all.finish();
}

}  // namespace pyxfer
