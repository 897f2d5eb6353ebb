#include "peer.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <bitset>
#include <mutex>

#include "control.hpp"
#include "device.hpp"
#include "entry.hpp"

namespace pyxfer::hostrt {
namespace {

/// A real device has this many peers at most.
constexpr std::size_t most_peers = 8;

/// Bits of the peers of each device.
using peer_bits = std::array<std::bitset<max_devices>, max_devices>;

std::mutex mutex;
peer_bits allowed_peers;
peer_bits refused_peers;

auto bit_of(peer_bits& bits, int device, int peer) {
  return bits.at(static_cast<std::size_t>(device))[static_cast<std::size_t>(peer)];
}

cudaError_t allow(int device, int peer) {
  std::scoped_lock const lock{mutex};
  auto allowed = bit_of(allowed_peers, device, peer);
  if (bit_of(refused_peers, device, peer)) return cudaErrorPeerAccessUnsupported;
  if (allowed) return cudaErrorPeerAccessAlreadyEnabled;
  auto const count = allowed_peers.at(static_cast<std::size_t>(device)).count();
  if (count == most_peers) return cudaErrorTooManyPeers;
  allowed = true;
  return cudaSuccess;
}

cudaError_t forbid(int device, int peer) {
  std::scoped_lock const lock{mutex};
  auto allowed = bit_of(allowed_peers, device, peer);
  if (!allowed) return cudaErrorPeerAccessNotEnabled;
  allowed = false;
  return cudaSuccess;
}

bool is_possible(int device, int peer) {
  std::scoped_lock const lock{mutex};
  return device != peer && !bit_of(refused_peers, device, peer);
}

}  // namespace

bool has_peer_access(int device, int peer) {
  std::scoped_lock const lock{mutex};
  return device == peer || bit_of(allowed_peers, device, peer);
}

bool copies_directly(int device, int other) {
  return has_peer_access(device, other) || has_peer_access(other, device);
}

void reset_peers() {
  std::scoped_lock const lock{mutex};
  allowed_peers = {};
  refused_peers = {};
}

void refuse_peer(int device, int peer, bool refused) {
  std::scoped_lock const lock{mutex};
  bit_of(refused_peers, possible_device(device), possible_device(peer)) = refused;
}

}  // namespace pyxfer::hostrt

using namespace pyxfer::hostrt;

cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  return runtime_call<index_of("cudaDeviceCanAccessPeer")>([&] {
    if (canAccessPeer == nullptr) return cudaErrorInvalidValue;
    if (!is_device(device) || !is_device(peerDevice)) return cudaErrorInvalidDevice;
    *canAccessPeer = is_possible(device, peerDevice) ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
  return runtime_call<index_of("cudaDeviceEnablePeerAccess")>([&] {
    if (flags != 0) return cudaErrorInvalidValue;
    auto const device = this_thread().device;
    if (!is_device(peerDevice) || peerDevice == device) return cudaErrorInvalidDevice;
    return allow(device, peerDevice);
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice) {
  return runtime_call<index_of("cudaDeviceDisablePeerAccess")>([&] {
    if (!is_device(peerDevice)) return cudaErrorInvalidDevice;
    return forbid(this_thread().device, peerDevice);
  });
}
