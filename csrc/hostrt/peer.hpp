#pragma once

#include <bitset>
#include <mutex>

#include "injection.hpp"

namespace pyxfer::hostrt {

/// Which devices may access the memory of which others directly.
class peer_access {
 public:
  /// Whether it could be allowed.
  [[nodiscard]] bool possible(int device, int peer) const;
  /// Whether it is allowed now; a device may always access its own memory.
  [[nodiscard]] bool allowed(int device, int peer) const;
  [[nodiscard]] cudaError_t allow(int device, int peer);
  [[nodiscard]] cudaError_t forbid(int device, int peer);

  void refuse(int device, int peer, bool refused);
  void reset();

 private:
  static std::size_t pair(int device, int peer);

  mutable std::mutex mutex_;
  std::bitset<std::size_t{max_devices} * max_devices> allowed_;
  std::bitset<std::size_t{max_devices} * max_devices> refused_;
};

[[nodiscard]] peer_access& peers();

}  // namespace pyxfer::hostrt
