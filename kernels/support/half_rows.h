// Converts rows of half to float and back, 16 or 8 elements at a time where the processor can (AVX-512, or F16C, a part
// of x86-64-v3). The bits are those of the conversions in half.h.
#pragma once

#include "graphsink/half.h"
#include "kernels/support/kernel.h"
#ifdef GRAPHSINK_VECTOR_LEVELS
#include <immintrin.h>
#endif

namespace graphsink {

#ifdef GRAPHSINK_VECTOR_LEVELS
// Each returns the number of elements done, all but the last few.
[[gnu::target("arch=x86-64-v4")]] inline std::int64_t widen_long_blocks(std::int64_t n, const half* x, float* out) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_ps(out + i,
                     _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i))));
  return i;
}
[[gnu::target("arch=x86-64-v4")]] inline std::int64_t narrow_long_blocks(std::int64_t n, const float* x, half* out) {
  const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fffffff));  // which becomes 0x7fff
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m512 wide = _mm512_loadu_ps(x + i);
    wide = _mm512_mask_mov_ps(wide, _mm512_cmp_ps_mask(wide, wide, _CMP_UNORD_Q), nan);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm512_maskz_cvtps_ph(0xffff, wide, _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}
[[gnu::target("arch=x86-64-v3")]] inline std::int64_t widen_blocks(std::int64_t n, const half* x, float* out) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
  return i;
}
[[gnu::target("arch=x86-64-v3")]] inline std::int64_t narrow_blocks(std::int64_t n, const float* x, half* out) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));  // which becomes 0x7fff
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 wide = _mm256_loadu_ps(x + i);
    wide = _mm256_blendv_ps(wide, nan, _mm256_cmp_ps(wide, wide, _CMP_UNORD_Q));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}
#endif

inline void widen(std::int64_t n, const half* x, float* out) {
  std::int64_t done = 0;
#ifdef GRAPHSINK_VECTOR_LEVELS
  if (vector_level() == VectorLevel::avx512) done = widen_long_blocks(n, x, out);
  if (vector_level() == VectorLevel::avx2) done = widen_blocks(n, x, out);
#endif
  for_each_index(n - done, [=](std::int64_t i) { out[done + i] = x[done + i]; });
}
inline void narrow(std::int64_t n, const float* x, half* out) {
  std::int64_t done = 0;
#ifdef GRAPHSINK_VECTOR_LEVELS
  if (vector_level() == VectorLevel::avx512) done = narrow_long_blocks(n, x, out);
  if (vector_level() == VectorLevel::avx2) done = narrow_blocks(n, x, out);
#endif
  for_each_index(n - done, [=](std::int64_t i) { out[done + i] = half(x[done + i]); });
}

}  // namespace graphsink
