#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pyxfer {

/// What a cache holds at a time, and what a store must cover whole to go past it.
inline constexpr std::size_t cache_line = 64;

/// How bytes get into a slot and out of it: through the caches, or past them.
enum class fill_kind { plain, streaming };

[[nodiscard]] fill_kind fill_kind_of(std::string const& word);
[[nodiscard]] char const* word_of(fill_kind kind) noexcept;

/// Copies bytes of any number and alignment; other threads and devices see them when it returns.
using fill_function = void (*)(void* to, void const* from, std::size_t bytes);

struct fill_kernel {
  char const* name;
  fill_function copy;
};

/// What this processor can do: plain first, the widest streaming one last. They are looked for
/// once.
[[nodiscard]] std::vector<fill_kernel> const& fill_kernels();

/// The best of that kind here: plain where the processor has no stores that stream.
[[nodiscard]] fill_kernel fill_kernel_of(fill_kind kind);

}  // namespace pyxfer
