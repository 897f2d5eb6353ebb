#pragma once

#include <cstdint>

namespace pyxfer {

/// The instructions beyond SSE2 that fills and casts use, and that the system lets programs use.
struct processor_features {
  bool avx2{};
  bool f16c{};
  bool avx512f{};
  bool cldemote{};
};

/// The registers that show them.
struct processor_words {
  std::uint32_t leaf_1_ecx{};  ///< CPUID.(EAX=01H):ECX
  std::uint32_t leaf_7_ebx{};  ///< CPUID.(EAX=07H,ECX=0):EBX
  std::uint32_t leaf_7_ecx{};  ///< CPUID.(EAX=07H,ECX=0):ECX
  std::uint64_t xcr0{};        ///< which registers the system saves; 0 where XGETBV is not enabled
};

[[nodiscard]] processor_features features_of(processor_words const& words) noexcept;

/// Those of this processor. Processors other than x86_64 have none.
[[nodiscard]] processor_features this_processor() noexcept;

}  // namespace pyxfer
