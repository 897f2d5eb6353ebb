#pragma once

#include "cuda/capture.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace pyxfer {

struct device_properties {
  std::string name;
  std::string uuid;  ///< "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  std::string pci;   ///< empty if the device is not on a PCI bus
  std::size_t memory_bytes;
  int compute_major;
  int compute_minor;
  int copy_engines;
  bool integrated;
};

[[nodiscard]] int device_count();
[[nodiscard]] int driver_version();
[[nodiscard]] device_properties properties_of(int device);
[[nodiscard]] std::pair<std::size_t, std::size_t> memory_info(int device);

/// The value of an attribute of cudaDeviceAttr.
[[nodiscard]] int device_attribute(int device, cudaDeviceAttr attribute);

/// Waits for all work on the device, including that of other libraries' streams.
void synchronize_device(int device);

/// Makes a context current, and relaxes captures, until it is destroyed.
class context_guard {
 public:
  explicit context_guard(CUcontext wanted);
  ~context_guard();
  context_guard(context_guard const&) = delete;
  context_guard& operator=(context_guard const&) = delete;
  context_guard(context_guard&&) = delete;
  context_guard& operator=(context_guard&&) = delete;

 private:
  capture_relaxation relaxed_;
  CUcontext previous_{};
  bool changed_{false};
};

/// The device's primary context, which is created if necessary.
[[nodiscard]] CUcontext primary_context(int device);

/// Makes a device's primary context current, relaxes captures, and restores the previous context
/// exactly, so that a framework in the same thread sees no change.
class device_guard {
 public:
  explicit device_guard(int device);
  ~device_guard();
  device_guard(device_guard const&) = delete;
  device_guard& operator=(device_guard const&) = delete;
  device_guard(device_guard&&) = delete;
  device_guard& operator=(device_guard&&) = delete;

 private:
  capture_relaxation relaxed_;
  CUcontext previous_{};
};

/// Calls `release` with the device current. If the device cannot be made current, `release` is
/// called anyway, because there is no second attempt, and the error is thrown afterwards.
template <typename Release>
void release_on(int device, Release const& release) {
  std::optional<device_guard> guard;
  std::exception_ptr fault;
  try {
    guard.emplace(device);
  } catch (...) { fault = std::current_exception(); }
  release();
  if (fault) { std::rethrow_exception(fault); }
}

}  // namespace pyxfer
