#include "cuda/device.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"
#include "cuda/stream.hpp"

#include <array>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string_view>

namespace pyxfer {
namespace {

std::string uuid_text(CUuuid const& uuid) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    auto const value = static_cast<unsigned char>(uuid.bytes[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) { text += '-'; }
    text += digits[value / 16U];
    text += digits[value % 16U];
  }
  return text;
}

std::string pci_address(int device) {
  std::array<char, 32> text{};
  auto const status = cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device);
  if (status == cudaErrorInvalidDevice) {  // a device that is not on a PCI bus
    static_cast<void>(cudaGetLastError());
    return {};
  }
  PYXFER_TRY_STATUS("cudaDeviceGetPCIBusId", status);
  return text.data();
}

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

/// Sets this thread's mode, and writes the previous one to `mode`.
void exchange(CUstreamCaptureMode& mode) {
  PYXFER_TRY(driver().cuThreadExchangeStreamCaptureMode(&mode));
}

}  // namespace

int device_count() {
  note_process();
  int count = 0;
  PYXFER_TRY(cudaGetDeviceCount(&count));
  return count;
}

int driver_version() {
  int version = 0;
  PYXFER_TRY(cudaDriverGetVersion(&version));
  return version;
}

int device_attribute(int device, cudaDeviceAttr attribute) {
  note_process();
  int value = 0;
  PYXFER_TRY(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

device_properties properties_of(int device) {
  note_process();
  device_properties found{};
  std::array<char, 256> name{};
  CUuuid uuid{};
  CUdevice handle{};
  PYXFER_TRY(driver().cuDeviceGet(&handle, device));
  PYXFER_TRY(driver().cuDeviceGetName(name.data(), static_cast<int>(name.size()), handle));
  PYXFER_TRY(driver().cuDeviceGetUuid(&uuid, handle));
  PYXFER_TRY(driver().cuDeviceTotalMem(&found.memory_bytes, handle));
  found.name = name.data();
  found.uuid = uuid_text(uuid);
  found.pci = pci_address(device);
  found.compute_major = device_attribute(device, cudaDevAttrComputeCapabilityMajor);
  found.compute_minor = device_attribute(device, cudaDevAttrComputeCapabilityMinor);
  found.copy_engines = device_attribute(device, cudaDevAttrAsyncEngineCount);
  found.integrated = device_attribute(device, cudaDevAttrIntegrated) != 0;
  return found;
}

std::pair<std::size_t, std::size_t> memory_info(int device) {
  device_guard const guard{device};
  std::size_t free = 0;
  std::size_t total = 0;
  PYXFER_TRY(cudaMemGetInfo(&free, &total));
  return {free, total};
}

void synchronize_device(int device) {
  device_guard const guard{device};
  PYXFER_TRY(cudaDeviceSynchronize());
}

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

capture_relaxation::capture_relaxation() {
  note_process();
  exchange(previous_);
}

capture_relaxation::~capture_relaxation() {
  release_noexcept([this] { exchange(previous_); });
}

void relax_captures_in_this_thread() {
  note_process();
  auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  exchange(mode);
}

bool is_capturing(stream_view on) {
  auto found = CU_STREAM_CAPTURE_STATUS_NONE;
  auto const status = driver().cuStreamIsCapturing(on.handle(), &found);
  // The legacy stream waits for all blocking streams, and one of them is being captured.
  if (status == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) { return true; }
  PYXFER_TRY_STATUS("cuStreamIsCapturing", status);
  return found != CU_STREAM_CAPTURE_STATUS_NONE;
}

void require_no_capture(stream_view on) {
  if (is_capturing(on)) {
    throw std::invalid_argument(
        "the stream is being captured into a CUDA graph: make this transfer before or after the "
        "capture");
  }
}

context_guard::context_guard(CUcontext wanted) {
  PYXFER_TRY(driver().cuCtxGetCurrent(&previous_));
  if (previous_ == wanted) { return; }
  PYXFER_TRY(driver().cuCtxSetCurrent(wanted));
  changed_ = true;
}

context_guard::~context_guard() {
  if (!changed_) { return; }
  release_noexcept([this] { PYXFER_TRY(driver().cuCtxSetCurrent(previous_)); });
}

CUcontext primary_context(int device) {
  device_guard const guard{device};
  CUcontext found{};
  PYXFER_TRY(driver().cuCtxGetCurrent(&found));
  return found;
}

device_guard::device_guard(int device) {
  PYXFER_TRY(driver().cuCtxGetCurrent(&previous_));
  PYXFER_TRY(cudaSetDevice(device));
}

device_guard::~device_guard() {
  release_noexcept([this] { PYXFER_TRY(driver().cuCtxSetCurrent(previous_)); });
}

}  // namespace pyxfer
