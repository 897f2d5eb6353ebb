#include "cuda/peer.hpp"

#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"

#include <mutex>
#include <set>
#include <utility>

namespace pyxfer {
namespace {

/// The pairs of which the first has access to the memory of the second.
class access_table {
 public:
  void set(int device, int peer, bool allowed) {
    std::scoped_lock const held{mutex_};
    if (allowed) {
      pairs_.emplace(device, peer);
    } else {
      pairs_.erase({device, peer});
    }
  }
  [[nodiscard]] bool has(int device, int peer) {
    std::scoped_lock const held{mutex_};
    return pairs_.count({device, peer}) != 0;
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<int, int>> pairs_;
};

access_table& accesses() {
  static auto& the_accesses = *new access_table;
  return the_accesses;
}

/// Whether a call only returned that nothing was left to do; the error must not be reported again.
bool is_done_already(cudaError_t status, cudaError_t expected) {
  if (status != expected) { return false; }
  static_cast<void>(cudaGetLastError());
  return true;
}

}  // namespace

bool has_access(int device, int peer) { return accesses().has(device, peer); }

bool can_access_peer(int device, int peer) {
  note_process();
  int can = 0;
  PYXFER_TRY(cudaDeviceCanAccessPeer(&can, device, peer));
  return can != 0;
}

void enable_peer(int device, int peer) {
  device_guard const guard{device};
  auto const status = cudaDeviceEnablePeerAccess(peer, 0);
  if (!is_done_already(status, cudaErrorPeerAccessAlreadyEnabled)) {
    PYXFER_TRY_STATUS("cudaDeviceEnablePeerAccess", status);
  }
  accesses().set(device, peer, true);
}

void disable_peer(int device, int peer) {
  device_guard const guard{device};
  accesses().set(device, peer, false);
  auto const status = cudaDeviceDisablePeerAccess(peer);
  if (is_done_already(status, cudaErrorPeerAccessNotEnabled)) { return; }
  PYXFER_TRY_STATUS("cudaDeviceDisablePeerAccess", status);
}

}  // namespace pyxfer
