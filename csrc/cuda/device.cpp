#include "cuda/device.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"

#include <array>
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
