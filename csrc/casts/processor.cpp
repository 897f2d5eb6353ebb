#include "casts/processor.hpp"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace pyxfer {
namespace {

// Intel's manual, volume 2, CPUID; volume 1, sections 13.3 and 15.2.
constexpr std::uint32_t osxsave = 1U << 27U;   // leaf 1, ECX
constexpr std::uint32_t f16c = 1U << 29U;      // leaf 1, ECX
constexpr std::uint32_t avx2 = 1U << 5U;       // leaf 7, EBX
constexpr std::uint32_t avx512f = 1U << 16U;   // leaf 7, EBX
constexpr std::uint32_t cldemote = 1U << 25U;  // leaf 7, ECX
constexpr std::uint64_t ymm_state = 0x06;      // XMM and the upper halves of YMM
constexpr std::uint64_t zmm_state = 0xE6;      // those, the mask registers and all of ZMM

#ifdef __x86_64__

[[gnu::target("xsave")]] std::uint64_t read_xcr0() noexcept { return _xgetbv(0); }

#endif

}  // namespace

processor_features features_of(processor_words const& words) noexcept {
  auto const saves = [&](std::uint64_t state) {
    return (words.leaf_1_ecx & osxsave) != 0 && (words.xcr0 & state) == state;
  };
  return {(words.leaf_7_ebx & avx2) != 0 && saves(ymm_state),
          (words.leaf_1_ecx & f16c) != 0 && saves(ymm_state),
          (words.leaf_7_ebx & avx512f) != 0 && saves(zmm_state),
          (words.leaf_7_ecx & cldemote) != 0};
}

// __builtin_cpu_supports is not used: zig's runtime library answers 0 to each of its questions.
processor_features this_processor() noexcept {
#ifdef __x86_64__
  processor_words found;
  std::uint32_t unused = 0;
  __get_cpuid(1, &unused, &unused, &found.leaf_1_ecx, &unused);
  __get_cpuid_count(7, 0, &unused, &found.leaf_7_ebx, &found.leaf_7_ecx, &unused);
  if ((found.leaf_1_ecx & osxsave) != 0) { found.xcr0 = read_xcr0(); }
  return features_of(found);
#else
  return {};
#endif
}

}  // namespace pyxfer
