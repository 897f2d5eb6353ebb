// The kernel's NUMA calls, without libnuma: which node a page is on, and where new pages go.
//
// Every function throws std::system_error with the kernel's errno: EPERM in a container whose
// seccomp profile reserves these calls for CAP_SYS_NICE, ENOSYS on a kernel built without NUMA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace pyxfer {

/// The most pages that are checked in one buffer. A larger buffer is sampled evenly, because a
/// check costs about a microsecond per page.
inline constexpr std::size_t most_pages_sampled = 4096;

/// Counts the checked pages of a buffer by NUMA node.
///
/// A page without a node is counted under the negative errno that the kernel reports for it:
/// -ENOENT if it was never written, -EFAULT if it is not mapped. This describes the buffer; the
/// call itself has not failed.
[[nodiscard]] std::map<int, std::size_t> page_nodes(std::uintptr_t address, std::size_t bytes);

/// A thread's memory policy: on which nodes the kernel allocates its new pages.
struct memory_policy {
  int mode;
  std::vector<unsigned long> nodes;
};

[[nodiscard]] memory_policy current_policy();

/// Sets the policy of the calling thread.
void restore(memory_policy const& policy);

/// Prefers a node for pages that the calling thread touches first. Without a node it restores the
/// policy from before the last call with a node, or does nothing if there was no such call. Calls
/// nest, separately in each thread.
void prefer_node(std::optional<int> node);

/// Unmaps the whole pages of a range in one mapping that processes share, without changing what
/// they hold: a later access maps them again. Returns false, without a change, for other memory.
[[nodiscard]] bool unmap_shared(std::uintptr_t address, std::size_t bytes);

}  // namespace pyxfer
