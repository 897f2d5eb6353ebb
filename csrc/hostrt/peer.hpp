#pragma once

namespace pyxfer::hostrt {

/// Whether a device may access the memory of another directly now; its own memory it always may.
[[nodiscard]] bool has_peer_access(int device, int peer);

/// Whether a copy between two devices goes directly. Either side may issue it, so access in one
/// direction is enough.
[[nodiscard]] bool copies_directly(int device, int other);

void reset_peers();

}  // namespace pyxfer::hostrt
