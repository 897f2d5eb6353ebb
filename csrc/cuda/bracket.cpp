#include "cuda/bracket.hpp"

#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/wait.hpp"

namespace pyxfer {
namespace {

constexpr double start_patience_s = 30.0;

}  // namespace

bracket::bracket(int device)
    : device_{device}, own_{std::in_place, device}, on_{own_->view()}, start_{device}, stop_{device} {}

bracket::bracket(int device, stream_view on)
    : device_{device}, on_{on}, start_{device}, stop_{device} {}

void bracket::begin() {
  device_guard const guard{device_};
  if (own_) { PYXFER_TRY(cudaDeviceSynchronize()); }
  start_.record(on_);
  // On an idle stream the device stamps it at once; seen to be stamped, it cannot be late, and no time is lost.
  if (own_) { wait(start_, patience{start_patience_s}, "an event on an idle stream"); }
}

void bracket::end() {
  device_guard const guard{device_};
  if (own_) { PYXFER_TRY(cudaDeviceSynchronize()); }
  stop_.record(on_);
}

bool bracket::ended_within(double seconds) const { return wait_for(stop_, seconds); }

void bracket::close() {
  start_.close();
  stop_.close();
  if (own_) { own_->close(); }
}

}  // namespace pyxfer
