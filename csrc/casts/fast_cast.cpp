#include "casts/cast.hpp"
#include "casts/processor.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#ifdef __x86_64__
#ifndef __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // https://gcc.gnu.org/PR105593
#endif
#include <immintrin.h>
#ifndef __clang__
#pragma GCC diagnostic pop
#endif
#endif

namespace pyxfer {
namespace {

#ifdef __x86_64__

using kind = item_kind;
using bytes_view = unsigned char const*;

constexpr std::size_t cache_line = 64;
/// How far ahead the source is prefetched. The processor also prefetches, but not across pages.
constexpr std::size_t ahead = 16 * cache_line;
/// The bits of a float64's fraction that a float32 does not have.
constexpr long long beyond_float32 = (1LL << 29U) - 1;

/// Of the kinds that occur here.
constexpr std::size_t size_of(kind of) noexcept {
  if (of == kind::f64 || of == kind::i64) { return 8; }
  return of == kind::f32 || of == kind::i32 ? 4 : 2;
}

#define PYXFER_AVX2 [[gnu::always_inline, gnu::target("avx2,f16c")]] static inline
#define PYXFER_AVX512 [[gnu::always_inline, gnu::target("avx512f")]] static inline

struct avx2 {
  PYXFER_AVX2 __m256i load(bytes_view at) {
    return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(at));
  }

  /// The float32 that is nearest towards zero, with its last bit set unless it is equal. If the
  /// number lies between two float32, it is then no tie between two float16, and so is rounded
  /// only once on its way to float16.
  PYXFER_AVX2 __m256i with_odd_rest(__m256i bits) {
    auto const beyond = _mm256_set1_epi64x(beyond_float32);
    auto const last = _mm256_add_epi64(_mm256_and_si256(bits, beyond), beyond);
    return _mm256_andnot_si256(beyond, _mm256_or_si256(bits, last));
  }

  PYXFER_AVX2 __m256 as_float32(__m256i low, __m256i high) {
    return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_castsi256_pd(high)),
                           _mm256_cvtpd_ps(_mm256_castsi256_pd(low)));
  }

  PYXFER_AVX2 __m256i as_float16(__m256 low, __m256 high) {
    return _mm256_set_m128i(_mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
  }

  /// A NaN is made quiet instead, because rounding could carry its bits out of the exponent.
  PYXFER_AVX2 __m256i bfloat16_of(__m256 value) {
    auto const bits = _mm256_castps_si256(value);
    auto const odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    auto const rounded = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7FFF));
    auto const quiet = _mm256_or_si256(bits, _mm256_set1_epi32(1 << 22U));
    auto const is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
  }

  /// Instructions that pack two registers do it in each of their halves by itself.
  PYXFER_AVX2 __m256i in_order(__m256i quarters) {
    return _mm256_permute4x64_epi64(quarters, _MM_SHUFFLE(3, 1, 2, 0));
  }

  PYXFER_AVX2 __m256i as_bfloat16(__m256 low, __m256 high) {
    return in_order(_mm256_packus_epi32(bfloat16_of(low), bfloat16_of(high)));
  }

  PYXFER_AVX2 __m256i as_int32(__m256i low, __m256i high) {
    return in_order(_mm256_castps_si256(_mm256_shuffle_ps(
        _mm256_castsi256_ps(low), _mm256_castsi256_ps(high), _MM_SHUFFLE(2, 0, 2, 0))));
  }

  template <kind from, kind to>
  PYXFER_AVX2 __m256 float32s(bytes_view at) {
    if constexpr (from == kind::f32) {
      return _mm256_castsi256_ps(load(at));
    } else if constexpr (to == kind::f16) {
      return as_float32(with_odd_rest(load(at)), with_odd_rest(load(at + 32)));
    } else {
      return as_float32(load(at), load(at + 32));
    }
  }

  /// As many items as are one register in the target.
  template <kind from, kind to>
  PYXFER_AVX2 __m256i pack(bytes_view at) {
    constexpr auto half = 16 / size_of(to) * size_of(from);
    if constexpr (to == kind::i32) {
      return as_int32(load(at), load(at + half));
    } else if constexpr (to == kind::f32) {
      return _mm256_castps_si256(float32s<from, to>(at));
    } else if constexpr (to == kind::f16) {
      return as_float16(float32s<from, to>(at), float32s<from, to>(at + half));
    } else {
      return as_bfloat16(float32s<from, to>(at), float32s<from, to>(at + half));
    }
  }
};

/// The same with registers of twice the size.
struct avx512 {
  PYXFER_AVX512 __m512i load(bytes_view at) { return _mm512_loadu_si512(at); }

  PYXFER_AVX512 __m512i with_odd_rest(__m512i bits) {
    auto const beyond = _mm512_set1_epi64(beyond_float32);
    auto const last = _mm512_add_epi64(_mm512_and_si512(bits, beyond), beyond);
    return _mm512_andnot_si512(beyond, _mm512_or_si512(bits, last));
  }

  PYXFER_AVX512 __m512i both(__m256i low, __m256i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }

  PYXFER_AVX512 __m512 as_float32(__m512i low, __m512i high) {
    return _mm512_castsi512_ps(
        both(_mm256_castps_si256(_mm512_cvtpd_ps(_mm512_castsi512_pd(low))),
             _mm256_castps_si256(_mm512_cvtpd_ps(_mm512_castsi512_pd(high)))));
  }

  PYXFER_AVX512 __m512i as_float16(__m512 low, __m512 high) {
    return both(_mm512_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT),
                _mm512_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT));
  }

  /// Not by AVX512_BF16, whose conversion takes subnormal numbers for zero.
  PYXFER_AVX512 __m256i bfloat16_of(__m512 value) {
    auto const bits = _mm512_castps_si512(value);
    auto const odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    auto const rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7FFF));
    auto const is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    auto const result = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(1 << 22U));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(result, 16));
  }

  PYXFER_AVX512 __m512i as_bfloat16(__m512 low, __m512 high) {
    return both(bfloat16_of(low), bfloat16_of(high));
  }

  PYXFER_AVX512 __m512i as_int32(__m512i low, __m512i high) {
    return both(_mm512_cvtepi64_epi32(low), _mm512_cvtepi64_epi32(high));
  }

  template <kind from, kind to>
  PYXFER_AVX512 __m512 float32s(bytes_view at) {
    if constexpr (from == kind::f32) {
      return _mm512_castsi512_ps(load(at));
    } else if constexpr (to == kind::f16) {
      return as_float32(with_odd_rest(load(at)), with_odd_rest(load(at + 64)));
    } else {
      return as_float32(load(at), load(at + 64));
    }
  }

  template <kind from, kind to>
  PYXFER_AVX512 __m512i pack(bytes_view at) {
    constexpr auto half = 32 / size_of(to) * size_of(from);
    if constexpr (to == kind::i32) {
      return as_int32(load(at), load(at + half));
    } else if constexpr (to == kind::f32) {
      return _mm512_castps_si512(float32s<from, to>(at));
    } else if constexpr (to == kind::f16) {
      return as_float16(float32s<from, to>(at), float32s<from, to>(at + half));
    } else {
      return as_bfloat16(float32s<from, to>(at), float32s<from, to>(at + half));
    }
  }
};

#undef PYXFER_AVX2
#undef PYXFER_AVX512

void fetch(bytes_view from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += cache_line) {
    _mm_prefetch(reinterpret_cast<char const*>(from) + ahead + at, _MM_HINT_T0);
  }
}

/// The bytes of the source for one cache line of the target.
template <kind from, kind to>
constexpr std::size_t read_for_line = cache_line / size_of(to) * size_of(from);

template <kind from, kind to, cast_stores stores>
[[gnu::target("avx2,f16c")]] void lines_avx2(unsigned char* put, bytes_view get,
                                             std::size_t lines) {
  constexpr auto read = read_for_line<from, to>;
  for (; lines != 0; --lines, put += cache_line, get += read) {
    fetch(get, read);
    auto* const target = reinterpret_cast<__m256i*>(put);
    auto const low = avx2::pack<from, to>(get);
    auto const high = avx2::pack<from, to>(get + read / 2);
    if constexpr (stores == cast_stores::streaming) {
      _mm256_stream_si256(target, low);
      _mm256_stream_si256(target + 1, high);
    } else {
      _mm256_store_si256(target, low);
      _mm256_store_si256(target + 1, high);
    }
  }
}

template <kind from, kind to, cast_stores stores>
[[gnu::target("avx512f")]] void lines_avx512(unsigned char* put, bytes_view get,
                                             std::size_t lines) {
  constexpr auto read = read_for_line<from, to>;
  for (; lines != 0; --lines, put += cache_line, get += read) {
    fetch(get, read);
    auto const line = avx512::pack<from, to>(get);
    if constexpr (stores == cast_stores::streaming) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(put), line);
    } else {
      _mm512_store_si512(reinterpret_cast<__m512i*>(put), line);
    }
  }
}

using line_caster = void (*)(unsigned char* put, bytes_view get, std::size_t lines);

/// Stores whole cache lines of the target, and casts what lies before and behind them plainly. A
/// target whose lines begin within an item is cast plainly.
template <kind from, kind to, line_caster cast_lines>
void by_lines(void* put, void const* get, std::size_t items) {
  auto const plain = plain_cast(from, to);
  auto const beyond = reinterpret_cast<std::uintptr_t>(put) % cache_line;
  if (beyond % size_of(to) != 0) { return plain(put, get, items); }
  auto* const target = static_cast<unsigned char*>(put);
  auto const* const source = static_cast<bytes_view>(get);
  constexpr auto in_line = cache_line / size_of(to);
  auto const head = std::min(items, beyond == 0 ? 0 : (cache_line - beyond) / size_of(to));
  plain(target, source, head);
  auto const lines = (items - head) / in_line;
  cast_lines(target + head * size_of(to), source + head * size_of(from), lines);
  auto const done = head + lines * in_line;
  plain(target + done * size_of(to), source + done * size_of(from), items - done);
  _mm_sfence();  // nothing else orders streaming stores with what follows, not even a lock
}

struct fast_pair {
  kind from;
  kind to;
  cast_function with_avx2;
  cast_function with_avx512;
};

template <kind from, kind to, cast_stores stores>
constexpr fast_pair fast() {
  return {from, to, by_lines<from, to, lines_avx2<from, to, stores>>,
          by_lines<from, to, lines_avx512<from, to, stores>>};
}

/// The usual pairs that shrink what crosses the link.
template <cast_stores stores>
constexpr std::array fast_pairs{
    fast<kind::f64, kind::f32, stores>(),  fast<kind::f64, kind::f16, stores>(),
    fast<kind::f64, kind::bf16, stores>(), fast<kind::f32, kind::f16, stores>(),
    fast<kind::f32, kind::bf16, stores>(), fast<kind::i64, kind::i32, stores>()};

/// Integers that shrink only lose bits, with a sign or without.
kind with_sign(kind of) noexcept {
  if (of == kind::u64) { return kind::i64; }
  return of == kind::u32 ? kind::i32 : of;
}

void add_fast_kernels(std::vector<cast_kernel>& found, kind from, kind to, cast_stores stores) {
  static auto const has = this_processor();
  auto const streams = stores == cast_stores::streaming;
  for (auto const& each :
       streams ? fast_pairs<cast_stores::streaming> : fast_pairs<cast_stores::cached>) {
    if (each.from != with_sign(from) || each.to != with_sign(to)) { continue; }
    if (has.avx2 && has.f16c) { found.push_back({"avx2", each.with_avx2}); }
    if (has.avx512f) { found.push_back({"avx512", each.with_avx512}); }
  }
}

#else  // aarch64: CUDA has no other hosts, and its compilers vectorise the plain conversions

void add_fast_kernels(std::vector<cast_kernel>& /*found*/, item_kind /*from*/, item_kind /*to*/,
                      cast_stores /*stores*/) {}

#endif

}  // namespace

std::vector<cast_kernel> cast_kernels(item_kind from, item_kind to, cast_stores stores) {
  std::vector<cast_kernel> found{{"plain", plain_cast(from, to)}};
  add_fast_kernels(found, from, to, stores);
  return found;
}

cast_function cast_of(item_kind from, item_kind to, cast_stores stores) {
  return cast_kernels(from, to, stores).back().cast;
}

}  // namespace pyxfer
