#include "cuda/registration.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"

#include <stdexcept>

namespace pyxfer {

namespace {

bool can_lock_read_only(int device) {
  int can = 0;
  PYXFER_TRY(cudaDeviceGetAttribute(&can, cudaDevAttrHostRegisterReadOnlySupported, device));
  return can != 0;
}

}  // namespace

registration::registration(std::uintptr_t address, std::size_t bytes, int device, bool writeable)
    : size_{bytes}, device_{device}, data_{reinterpret_cast<void*>(address)} {
  if (data_ == nullptr || size_ == 0) {
    throw std::invalid_argument("memory to lock needs an address and at least one byte");
  }
  device_guard const guard{device_};
  auto status = cudaHostRegister(data_, size_, cudaHostRegisterPortable);
  if (status == cudaErrorInvalidValue && !writeable && can_lock_read_only(device_)) {
    static_cast<void>(cudaGetLastError());
    status = cudaHostRegister(data_, size_, cudaHostRegisterPortable | cudaHostRegisterReadOnly);
  }
  PYXFER_TRY_STATUS("cudaHostRegister", status);
}

registration::registration(registration&& other) noexcept
    : size_{other.size_}, device_{other.device_}, data_{other.data_.exchange(nullptr)} {}

registration::~registration() {
  release_noexcept([this] { close(); });
}

void registration::close() {
  auto* const data = data_.exchange(nullptr);
  if (data == nullptr || !same_process()) { return; }
  release_on(device_, [&] { PYXFER_TRY(cudaHostUnregister(data)); });
}

}  // namespace pyxfer
