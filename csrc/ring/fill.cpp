#include "ring/fill.hpp"

#include "casts/processor.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace pyxfer {
namespace {

void plain(void* to, void const* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

using line_copier = void (*)(unsigned char* to, unsigned char const* from, std::size_t lines);

template <line_copier copy_lines>
void by_lines(void* to, void const* from, std::size_t bytes) {
  auto* const target = static_cast<unsigned char*>(to);
  auto const* const source = static_cast<unsigned char const*>(from);
  auto const beyond = reinterpret_cast<std::uintptr_t>(to) % cache_line;
  auto const head = std::min(bytes, beyond == 0 ? 0 : cache_line - beyond);
  std::memcpy(target, source, head);
  auto const lines = (bytes - head) / cache_line;
  copy_lines(target + head, source + head, lines);
  auto const done = head + lines * cache_line;
  std::memcpy(target + done, source + done, bytes - done);
#ifdef __x86_64__
  _mm_sfence();  // nothing else orders streaming stores with what follows, not even a lock
#endif
}

#ifdef __x86_64__

/// How far ahead the source is prefetched. The processor also prefetches, but not across pages.
constexpr std::size_t ahead = 16 * cache_line;

void fetch(unsigned char const* from) {
  _mm_prefetch(reinterpret_cast<char const*>(from) + ahead, _MM_HINT_T0);
}

void copy_lines_sse2(unsigned char* to, unsigned char const* from, std::size_t lines) {
  for (; lines != 0; --lines, to += cache_line, from += cache_line) {
    fetch(from);
    auto const* const source = reinterpret_cast<__m128i const*>(from);
    auto* const target = reinterpret_cast<__m128i*>(to);
    for (int i = 0; i < 4; ++i) { _mm_stream_si128(target + i, _mm_loadu_si128(source + i)); }
  }
}

[[gnu::target("avx2")]] void copy_lines_avx2(unsigned char* to, unsigned char const* from,
                                             std::size_t lines) {
  for (; lines != 0; --lines, to += cache_line, from += cache_line) {
    fetch(from);
    auto const* const source = reinterpret_cast<__m256i const*>(from);
    auto* const target = reinterpret_cast<__m256i*>(to);
    for (int i = 0; i < 2; ++i) { _mm256_stream_si256(target + i, _mm256_loadu_si256(source + i)); }
  }
}

[[gnu::target("avx512f")]] void copy_lines_avx512(unsigned char* to, unsigned char const* from,
                                                  std::size_t lines) {
  for (; lines != 0; --lines, to += cache_line, from += cache_line) {
    fetch(from);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
}

/// How far behind the stores lines are demoted: a line must have left the core's store buffer.
constexpr std::size_t behind = 8 * cache_line;
/// How far ahead the source is prefetched into the second-level cache, which allows more
/// outstanding lines.
constexpr std::size_t far_ahead = 64 * cache_line;

/// Processors without the instruction ignore it.
[[gnu::target("cldemote")]] void demote(unsigned char* first, unsigned char const* end) {
  for (; first < end; first += cache_line) { _cldemote(first); }
}

/// The target's lines are prefetched for writing, from the cache that they were demoted to.
[[gnu::target("avx2,prfchw,cldemote")]] void demote_lines_avx2(unsigned char* to,
                                                               unsigned char const* from,
                                                               std::size_t lines) {
  auto* const first = to;
  for (; lines != 0; --lines, to += cache_line, from += cache_line) {
    __builtin_prefetch(to + ahead, 1, 3);
    _mm_prefetch(reinterpret_cast<char const*>(from) + far_ahead, _MM_HINT_T1);
    auto const* const source = reinterpret_cast<__m256i const*>(from);
    auto* const target = reinterpret_cast<__m256i*>(to);
    for (int i = 0; i < 2; ++i) { _mm256_store_si256(target + i, _mm256_loadu_si256(source + i)); }
    if (to >= first + behind) { _cldemote(to - behind); }
  }
  demote(std::max(first, to - behind), to);
}

[[gnu::target("avx512f,prfchw,cldemote")]] void demote_lines_avx512(unsigned char* to,
                                                                    unsigned char const* from,
                                                                    std::size_t lines) {
  auto* const first = to;
  for (; lines != 0; --lines, to += cache_line, from += cache_line) {
    __builtin_prefetch(to + ahead, 1, 3);
    _mm_prefetch(reinterpret_cast<char const*>(from) + far_ahead, _MM_HINT_T1);
    _mm512_store_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
    if (to >= first + behind) { _cldemote(to - behind); }
  }
  demote(std::max(first, to - behind), to);
}

std::vector<fill_kernel> find_kernels(processor_features has) {
  using kind = fill_kind;
  std::vector<fill_kernel> found{{"plain", kind::plain, plain},
                                 {"sse2", kind::streaming, by_lines<copy_lines_sse2>}};
  if (has.avx2) { found.push_back({"avx2", kind::streaming, by_lines<copy_lines_avx2>}); }
  if (has.avx512f) { found.push_back({"avx512", kind::streaming, by_lines<copy_lines_avx512>}); }
  if (has.cldemote && has.avx2) {
    found.push_back({"avx2-demoting", kind::demoting, by_lines<demote_lines_avx2>});
  }
  if (has.cldemote && has.avx512f) {
    found.push_back({"avx512-demoting", kind::demoting, by_lines<demote_lines_avx512>});
  }
  return found;
}

#else  // aarch64: CUDA has no other hosts

/// Arm orders these stores as it does others, so no fence is needed. GCC has no name for them.
void copy_lines_stnp(unsigned char* to, unsigned char const* from, std::size_t lines) {
  for (; lines != 0; --lines, to += cache_line, from += cache_line) {
    asm volatile(
        "ldp q0, q1, [%1]\n\t"
        "ldp q2, q3, [%1, #32]\n\t"
        "stnp q0, q1, [%0]\n\t"
        "stnp q2, q3, [%0, #32]"
        :
        : "r"(to), "r"(from)
        : "v0", "v1", "v2", "v3", "memory");
  }
}

std::vector<fill_kernel> find_kernels(processor_features /*has*/) {
  return {{"plain", fill_kind::plain, plain},
          {"stnp", fill_kind::streaming, by_lines<copy_lines_stnp>}};
}

#endif

}  // namespace

fill_kind fill_kind_of(std::string const& word) {
  if (word == "plain") { return fill_kind::plain; }
  if (word == "streaming") { return fill_kind::streaming; }
  if (word == "demoting") { return fill_kind::demoting; }
  throw std::invalid_argument("unknown fill \"" + word +
                              "\"; known are plain, streaming and demoting");
}

char const* word_of(fill_kind kind) noexcept {
  switch (kind) {
    case fill_kind::plain: return "plain";
    case fill_kind::streaming: return "streaming";
    case fill_kind::demoting: return "demoting";
  }
  return "";
}

std::vector<fill_kernel> const& fill_kernels() {
  static auto const& kernels = *new std::vector<fill_kernel>{find_kernels(this_processor())};
  return kernels;
}

std::vector<fill_kernel> executable_fill_kernels() {
  auto has = this_processor();
  has.cldemote = true;
  return find_kernels(has);
}

fill_kernel fill_kernel_of(fill_kind kind) {
  auto best = fill_kernels().front();
  for (auto const& kernel : fill_kernels()) {
    if (kernel.kind <= kind) { best = kernel; }
  }
  return best;
}

}  // namespace pyxfer
