// Where memory lies, and where it shall lie: the kernel's NUMA calls, without libnuma.
//
// Everything here throws std::system_error with the kernel's errno: EPERM in a container whose
// seccomp profile keeps these calls for CAP_SYS_NICE, ENOSYS on a kernel built without NUMA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace pyxfer {

/// Pages looked at in one buffer at most; more are sampled evenly, for asking costs about a
/// microsecond a page.
inline constexpr std::size_t most_pages_sampled = 4096;

/// How many pages of the buffer lie on which node. The counts are of the pages looked at.
///
/// A page that lies on no node is counted under the negative error the kernel gives for it: -ENOENT
/// where nothing was written yet, -EFAULT where nothing is mapped. That is an answer about the
/// buffer and no failure of the call.
[[nodiscard]] std::map<int, std::size_t> page_nodes(std::uintptr_t address, std::size_t bytes);

/// What a thread has told the kernel about where its new pages shall lie.
struct memory_policy {
  int mode;
  std::vector<unsigned long> nodes;
};

/// The policy of the calling thread.
[[nodiscard]] memory_policy current_policy();

/// Give the calling thread this policy.
void restore(memory_policy const& policy);

/// Prefer this node for pages that the calling thread touches first; without a node, put back the
/// policy that the last call with a node found. Calls nest, each thread on its own; without a node
/// and with nothing to put back it does nothing.
void prefer_node(std::optional<int> node);

}  // namespace pyxfer
