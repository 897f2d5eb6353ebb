#include "cuda/stream.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"

namespace pyxfer {

stream::stream(int device) : device_{device} {
  device_guard const guard{device_};
  CUstream made{};
  PYXFER_TRY(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  handle_ = made;
}

stream::stream(stream&& other) noexcept
    : device_{other.device_}, handle_{other.handle_.exchange(nullptr)} {}

stream::~stream() {
  release_noexcept([this] { close(); });
}

void stream::close() {
  auto* const handle = handle_.exchange(nullptr);
  if (handle == nullptr || !same_process()) { return; }
  release_on(device_, [&] { PYXFER_TRY(cudaStreamDestroy(handle)); });
}

}  // namespace pyxfer
