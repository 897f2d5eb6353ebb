#include "cuda/stream.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"

#include <utility>

namespace pyxfer {

stream::stream(int device) : device_{device} {
  device_guard const guard{device_};
  PYXFER_TRY(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
}

stream::stream(stream&& other) noexcept
    : device_{other.device_}, handle_{std::exchange(other.handle_, nullptr)} {}

stream::~stream() {
  release_noexcept([this] { close(); });
}

void stream::close() {
  auto* const handle = std::exchange(handle_, nullptr);
  if (handle == nullptr || !same_process()) { return; }
  release_on(device_, [&] { PYXFER_TRY(cudaStreamDestroy(handle)); });
}

}  // namespace pyxfer
