#include "cuda/registration.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"

#include <stdexcept>

namespace pyxfer {

registration::registration(std::uintptr_t address, std::size_t bytes, int device)
    : size_{bytes}, device_{device}, data_{reinterpret_cast<void*>(address)} {
  if (data_ == nullptr || size_ == 0) {
    throw std::invalid_argument("memory to lock needs an address and at least one byte");
  }
  device_guard const guard{device_};
  PYXFER_TRY(cudaHostRegister(data_, size_, cudaHostRegisterPortable));
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
