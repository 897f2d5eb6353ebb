#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pyxfer {

/// What a cache holds at a time, and what a store must cover whole to go past it.
inline constexpr std::size_t cache_line = 64;

/// How bytes get into a slot and out of it: through the caches, past them, or through them and then
/// at once out of the core's own cache into the one that devices read from. A device that reads
/// what still lies in a core's own waits for that core, each line anew.
enum class fill_kind { plain, streaming, demoting };

[[nodiscard]] fill_kind fill_kind_of(std::string const& word);
[[nodiscard]] char const* word_of(fill_kind kind) noexcept;

/// Copies bytes of any number and alignment; other threads and devices see them when it returns.
using fill_function = void (*)(void* to, void const* from, std::size_t bytes);

struct fill_kernel {
  char const* name;
  fill_kind kind;
  fill_function copy;
};

/// What this processor can do: plain first, then what streams, then what demotes, of both the
/// widest last. They are looked for once.
[[nodiscard]] std::vector<fill_kernel> const& fill_kernels();

/// The same, with those that demote lines even where this processor passes the instruction over:
/// all that can be tested here.
[[nodiscard]] std::vector<fill_kernel> executable_fill_kernels();

/// The best of that kind here; where the processor cannot demote lines it is what streams, and
/// where it cannot do that either, plain.
[[nodiscard]] fill_kernel fill_kernel_of(fill_kind kind);

}  // namespace pyxfer
