#pragma once

namespace pyxfer {

/// Whether the kernels and copy engines of `device` could access the memory of `peer` directly.
[[nodiscard]] bool can_access_peer(int device, int peer);

/// Whether the last of `enable_peer` and `disable_peer` for the two was `enable_peer`. CUDA cannot
/// be asked, so what other libraries do is not known here.
[[nodiscard]] bool has_access(int device, int peer);

/// Lets `device` access the memory of `peer` directly, in the whole process. It has no effect if
/// that is allowed already.
void enable_peer(int device, int peer);

/// Ends that, also if another library has allowed it; copies between the two then go through the
/// host. It has no effect if it is not allowed.
void disable_peer(int device, int peer);

}  // namespace pyxfer
