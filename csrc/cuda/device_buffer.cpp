#include "cuda/device_buffer.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"

namespace pyxfer {

device_buffer::device_buffer(std::size_t bytes, int device) : size_{bytes}, device_{device} {
  device_guard const guard{device_};
  void* made = nullptr;
  PYXFER_TRY(cudaMalloc(&made, size_));
  data_ = made;
}

device_buffer::device_buffer(device_buffer&& other) noexcept
    : size_{other.size_}, device_{other.device_}, data_{other.data_.exchange(nullptr)} {}

device_buffer::~device_buffer() {
  release_noexcept([this] { close(); });
}

void device_buffer::close() {
  auto* const data = data_.exchange(nullptr);
  if (data == nullptr || !same_process()) { return; }
  release_on(device_, [&] { PYXFER_TRY(cudaFree(data)); });
}

}  // namespace pyxfer
