#pragma once

namespace pyxfer::hostrt {

/// Whether a device may access the memory of another directly now; its own memory it always may.
[[nodiscard]] bool has_peer_access(int device, int peer);

void reset_peers();

}  // namespace pyxfer::hostrt
