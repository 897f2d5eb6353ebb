#include "peer.hpp"

#include <cuda_runtime_api.h>

#include "device.hpp"
#include "entry.hpp"

namespace pyxfer::hostrt {

std::size_t peer_access::pair(int device, int peer) {
  return static_cast<std::size_t>(device) * max_devices + static_cast<std::size_t>(peer);
}

bool peer_access::possible(int device, int peer) const {
  std::scoped_lock const lock{mutex_};
  return device != peer && !refused_[pair(device, peer)];
}

bool peer_access::allowed(int device, int peer) const {
  std::scoped_lock const lock{mutex_};
  return device == peer || allowed_[pair(device, peer)];
}

cudaError_t peer_access::allow(int device, int peer) {
  std::scoped_lock const lock{mutex_};
  if (refused_[pair(device, peer)]) return cudaErrorPeerAccessUnsupported;
  if (allowed_[pair(device, peer)]) return cudaErrorPeerAccessAlreadyEnabled;
  allowed_.set(pair(device, peer));
  return cudaSuccess;
}

cudaError_t peer_access::forbid(int device, int peer) {
  std::scoped_lock const lock{mutex_};
  if (!allowed_[pair(device, peer)]) return cudaErrorPeerAccessNotEnabled;
  allowed_.reset(pair(device, peer));
  return cudaSuccess;
}

void peer_access::refuse(int device, int peer, bool refused) {
  std::scoped_lock const lock{mutex_};
  refused_.set(pair(device, peer), refused);
}

void peer_access::reset() {
  std::scoped_lock const lock{mutex_};
  allowed_.reset();
  refused_.reset();
}

peer_access& peers() {
  static auto& the_peers = *new peer_access;
  return the_peers;
}

}  // namespace pyxfer::hostrt

using namespace pyxfer::hostrt;

cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  return runtime_call<index_of("cudaDeviceCanAccessPeer")>([&] {
    if (canAccessPeer == nullptr) return cudaErrorInvalidValue;
    if (!is_device(device) || !is_device(peerDevice)) return cudaErrorInvalidDevice;
    *canAccessPeer = peers().possible(device, peerDevice) ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
  return runtime_call<index_of("cudaDeviceEnablePeerAccess")>([&] {
    if (flags != 0) return cudaErrorInvalidValue;
    auto const device = this_thread().device;
    if (!is_device(peerDevice) || peerDevice == device) return cudaErrorInvalidDevice;
    return peers().allow(device, peerDevice);
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice) {
  return runtime_call<index_of("cudaDeviceDisablePeerAccess")>([&] {
    if (!is_device(peerDevice)) return cudaErrorInvalidDevice;
    return peers().forbid(this_thread().device, peerDevice);
  });
}
