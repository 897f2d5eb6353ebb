#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>
#include <utility>

namespace pyxfer {

struct device_properties {
  std::string name;
  std::string uuid;  ///< "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  std::string pci;   ///< empty where the device is not on a PCI bus
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

/// Wait until everything on the device is done, other libraries' streams included.
void synchronize_device(int device);

/// Makes a device's primary context current and puts back exactly what was current before, so that a framework in the
/// same thread sees no change.
class device_guard {
 public:
  explicit device_guard(int device);
  ~device_guard();
  device_guard(device_guard const&) = delete;
  device_guard& operator=(device_guard const&) = delete;
  device_guard(device_guard&&) = delete;
  device_guard& operator=(device_guard&&) = delete;

 private:
  CUcontext previous_{};
};

}  // namespace pyxfer
