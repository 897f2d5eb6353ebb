#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pyxfer {

/// Bytes of a cache line of x86_64 and of the Arm cores of hosts with NVIDIA GPUs. A streaming
/// store must cover all of it.
inline constexpr std::size_t cache_line = 64;

/// How bytes are copied into a slot and out of it: through the caches (plain), past them
/// (streaming), or through them and then at once from the core's own cache into the one that
/// devices read from (demoting). If a device reads a line that is still in a core's own cache, it
/// waits for that core.
enum class fill_kind { plain, streaming, demoting };

[[nodiscard]] fill_kind fill_kind_of(std::string const& word);
[[nodiscard]] char const* word_of(fill_kind kind) noexcept;

/// Copies any number of bytes at any alignment. Other threads and devices see them when it returns.
using fill_function = void (*)(void* to, void const* from, std::size_t bytes);

struct fill_kernel {
  char const* name;
  fill_kind kind;
  fill_function copy;
};

/// The kernels for this processor: plain, then the streaming ones, then the demoting ones; of each
/// kind the widest is last. They are determined once.
[[nodiscard]] std::vector<fill_kernel> const& fill_kernels();

/// The kernels that this processor can execute, for tests: it may ignore the instruction that
/// demotes lines.
[[nodiscard]] std::vector<fill_kernel> executable_fill_kernels();

/// The best kernel of that kind. A processor that cannot demote lines streams instead, and one that
/// cannot stream uses the plain kernel.
[[nodiscard]] fill_kernel fill_kernel_of(fill_kind kind);

}  // namespace pyxfer
