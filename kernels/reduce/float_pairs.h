// The sum of floats in f64, as reduce_row() has it for Sum::add_pair(): pairs of terms are added, then pair k is added
// to sum k % kLanes. The bits are the same.
#pragma once

#include "graphsink/half.h"
#include "kernels/support/kernel.h"
#ifdef GRAPHSINK_VECTOR_LEVELS
#include <immintrin.h>

#ifdef __CUDACC__
#define GRAPHSINK_UNROLL
#else
#define GRAPHSINK_UNROLL _Pragma("GCC unroll 8")
#endif

namespace graphsink {

// The last pairs, fewer than kLanes, filled up with zeros. These change no bit: a sum that began with 0 never is -0.
template <class T>
struct LastPairs {
  T x[kLanes] = {}, y[kLanes] = {};
  LastPairs(std::int64_t n, const T* all_x, const T* all_y) {
    std::copy_n(all_x, n, x);
    std::copy_n(all_y, n, y);
  }
};

// Compilers convert 16 floats to f64 as two halves of a vector, of which the second has to be extracted first. Here
// halves are loaded as such.
[[gnu::target("arch=x86-64-v4")]] inline __m256 load_8_floats(const half* x) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
}
[[gnu::target("arch=x86-64-v4")]] inline __m256 load_8_floats(const bfloat16* x) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
// Sums of 8 pairs. Pairs of f32 are added in f64, pairs of shorter floats in f32.
[[gnu::target("arch=x86-64-v4")]] inline __m512d add_8_pairs(const float* x, const float* y) {
  return _mm512_add_pd(_mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(x)),
                       _mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(y)));
}
template <class T>
[[gnu::target("arch=x86-64-v4")]] inline __m512d add_8_pairs(const T* x, const T* y) {
  return _mm512_maskz_cvtps_pd(0xff, _mm256_add_ps(load_8_floats(x), load_8_floats(y)));
}
template <class T>
[[gnu::target("arch=x86-64-v4")]] inline void add_pairs(__m512d (&sums)[4], const T* x, const T* y) {
  GRAPHSINK_UNROLL
  for (int s = 0; s < 4; ++s) sums[s] = _mm512_add_pd(sums[s], add_8_pairs(x + 8 * s, y + 8 * s));
}

// As join_lanes() for the last 8 lanes.
[[gnu::target("arch=x86-64-v3")]] inline double join_8_lanes(__m256d low, __m256d high) {
  const __m256d of4 = _mm256_add_pd(low, high);
  const __m128d of2 = _mm_add_pd(_mm256_castpd256_pd128(of4), _mm256_extractf128_pd(of4, 1));
  return _mm_cvtsd_f64(_mm_add_sd(of2, _mm_unpackhi_pd(of2, of2)));
}

// The sum of n pairs.
template <class T>
[[gnu::flatten, gnu::noinline, gnu::target("arch=x86-64-v4")]] double sum_pairs_avx512(std::int64_t n, const T* x,
                                                                                       const T* y) {
  static_assert(kLanes == 32);
  __m512d sums[4] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) add_pairs(sums, x + i, y + i);
  if (i < n) {
    const LastPairs<T> last(n - i, x + i, y + i);
    add_pairs(sums, last.x, last.y);
  }
  const __m512d of8 = _mm512_add_pd(_mm512_add_pd(sums[0], sums[2]), _mm512_add_pd(sums[1], sums[3]));
  return join_8_lanes(_mm512_maskz_extractf64x4_pd(0xf, of8, 0), _mm512_maskz_extractf64x4_pd(0xf, of8, 1));
}

// The same of f32 with half as wide vectors. A product with 1 is exact, so that a fused multiply-add is an addition.
// Zen 4 converts and adds in the same units, and multiplies in others, so that these do not wait for each other.
[[gnu::target("arch=x86-64-v3")]] inline void add_pairs(__m256d (&sums)[8], const float* x, const float* y) {
  const __m256d one = _mm256_set1_pd(1);
  GRAPHSINK_UNROLL
  for (int s = 0; s < 8; ++s) {
    const __m256d a = _mm256_cvtps_pd(_mm_loadu_ps(x + 4 * s)), b = _mm256_cvtps_pd(_mm_loadu_ps(y + 4 * s));
    sums[s] = _mm256_fmadd_pd(_mm256_fmadd_pd(a, one, b), one, sums[s]);
  }
}
// Processors do not load the next row by themselves where rows are no longer than a page of memory. Here they are told
// to; an address behind the last row does no harm, because it is not read.
constexpr std::int64_t kShortPairs = 512;
[[gnu::flatten, gnu::noinline, gnu::target("arch=x86-64-v3")]] inline double sum_pairs_avx2(std::int64_t n,
                                                                                            const float* x,
                                                                                            const float* y) {
  static_assert(kLanes == 32);
  const __m256d zero = _mm256_setzero_pd();
  __m256d sums[8] = {zero, zero, zero, zero, zero, zero, zero, zero};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    if (n <= kShortPairs)
      for (const float* next : {x + i + 3 * n, y + i + 3 * n}) {
        __builtin_prefetch(next);
        __builtin_prefetch(next + 16);
      }
    add_pairs(sums, x + i, y + i);
  }
  if (i < n) {
    const LastPairs<float> last(n - i, x + i, y + i);
    add_pairs(sums, last.x, last.y);
  }
  __m256d of16[4];
  GRAPHSINK_UNROLL
  for (int s = 0; s < 4; ++s) of16[s] = _mm256_add_pd(sums[s], sums[s + 4]);
  return join_8_lanes(_mm256_add_pd(of16[0], of16[2]), _mm256_add_pd(of16[1], of16[3]));
}

}  // namespace graphsink
#endif
