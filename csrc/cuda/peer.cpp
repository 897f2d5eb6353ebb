#include "cuda/peer.hpp"

#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"

namespace pyxfer {
namespace {

/// Whether a call only returned that nothing was left to do; the error must not be reported again.
bool is_done_already(cudaError_t status, cudaError_t expected) {
  if (status != expected) { return false; }
  static_cast<void>(cudaGetLastError());
  return true;
}

}  // namespace

bool can_access_peer(int device, int peer) {
  note_process();
  int can = 0;
  PYXFER_TRY(cudaDeviceCanAccessPeer(&can, device, peer));
  return can != 0;
}

void enable_peer(int device, int peer) {
  device_guard const guard{device};
  auto const status = cudaDeviceEnablePeerAccess(peer, 0);
  if (is_done_already(status, cudaErrorPeerAccessAlreadyEnabled)) { return; }
  PYXFER_TRY_STATUS("cudaDeviceEnablePeerAccess", status);
}

void disable_peer(int device, int peer) {
  device_guard const guard{device};
  auto const status = cudaDeviceDisablePeerAccess(peer);
  if (is_done_already(status, cudaErrorPeerAccessNotEnabled)) { return; }
  PYXFER_TRY_STATUS("cudaDeviceDisablePeerAccess", status);
}

}  // namespace pyxfer
