// The sum of floats in f64, as reduce_row() has it for Sum::add_pair(): pairs of terms are added, then each is added to
// one of kLanes sums. Compilers convert 16 floats to f64 as two halves of a vector, of which the second has to be
// extracted first; here halves are loaded as such. The bits are the same.
#pragma once

#include "graphsink/half.h"
#include "kernels/support/kernel.h"
#ifdef GRAPHSINK_VECTOR_LEVELS
#include <immintrin.h>

namespace graphsink {

[[gnu::target("arch=x86-64-v4")]] inline __m256 load_floats(const float* x) { return _mm256_loadu_ps(x); }
[[gnu::target("arch=x86-64-v4")]] inline __m256 load_floats(const half* x) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
}
[[gnu::target("arch=x86-64-v4")]] inline __m256 load_floats(const bfloat16* x) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// The sum of a pair: of f32 in f64, of shorter floats in f32.
[[gnu::target("arch=x86-64-v4")]] inline __m512d add_floats(const float* x, const float* y) {
  return _mm512_add_pd(_mm512_maskz_cvtps_pd(0xff, load_floats(x)), _mm512_maskz_cvtps_pd(0xff, load_floats(y)));
}
template <class T>
[[gnu::target("arch=x86-64-v4")]] inline __m512d add_floats(const T* x, const T* y) {
  return _mm512_maskz_cvtps_pd(0xff, _mm256_add_ps(load_floats(x), load_floats(y)));
}

// Of n pairs; add(sum, k) adds pair k to a sum.
template <class T, class Add>
[[gnu::flatten, gnu::noinline, gnu::target("arch=x86-64-v4")]] double sum_pairs_avx512(std::int64_t n, const T* x,
                                                                                       const T* y, const Add& add) {
  constexpr int kSums = kLanes / 8;
  __m512d sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#ifndef __CUDACC__
#pragma GCC unroll 4
#endif
    for (int s = 0; s < kSums; ++s) sums[s] = _mm512_add_pd(sums[s], add_floats(x + i + 8 * s, y + i + 8 * s));
  }
  if (i < n) {
    double lanes[kLanes];
    for (int s = 0; s < kSums; ++s) _mm512_storeu_pd(lanes + 8 * s, sums[s]);
    for (std::int64_t j = 0; i < n; ++i, ++j) lanes[j] = add(lanes[j], i);
    for (int s = 0; s < kSums; ++s) sums[s] = _mm512_loadu_pd(lanes + 8 * s);
  }
  // As join_lanes().
  static_assert(kLanes == 32);
  const __m512d of8 = _mm512_add_pd(_mm512_add_pd(sums[0], sums[2]), _mm512_add_pd(sums[1], sums[3]));
  const __m256d of4 =
      _mm256_add_pd(_mm512_maskz_extractf64x4_pd(0xf, of8, 0), _mm512_maskz_extractf64x4_pd(0xf, of8, 1));
  const __m128d of2 = _mm_add_pd(_mm256_castpd256_pd128(of4), _mm256_extractf128_pd(of4, 1));
  return _mm_cvtsd_f64(_mm_add_sd(of2, _mm_unpackhi_pd(of2, of2)));
}

}  // namespace graphsink
#endif
