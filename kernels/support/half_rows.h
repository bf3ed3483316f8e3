// Computes with rows of half, 16 or 8 elements at a time where the processor can convert so many to float and back
// (AVX-512, F16C, a part of x86-64-v3, or 64-bit ARM). The bits are those of the conversions in half.h.
#pragma once

#include "graphsink/half.h"
#include "kernels/support/kernel.h"
#ifdef GRAPHSINK_VECTOR_LEVELS
#include <immintrin.h>
#elif defined(__aarch64__) && !defined(__CUDACC__)
#define GRAPHSINK_ARM_HALVES
#include <arm_neon.h>
#endif
#if defined(GRAPHSINK_VECTOR_LEVELS) || defined(GRAPHSINK_ARM_HALVES)
#define GRAPHSINK_HALF_BLOCKS
#endif

namespace graphsink {

#ifdef GRAPHSINK_VECTOR_LEVELS
// Conversions of a block of elements.
struct LongHalfBlock {
  static constexpr std::int64_t kSize = 16;
  [[gnu::target("arch=x86-64-v4")]] static void widen(const half* x, float* out) {
    _mm512_storeu_ps(out, _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))));
  }
  [[gnu::target("arch=x86-64-v4")]] static void narrow(const float* x, half* out) {
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fffffff));  // which becomes 0x7fff
    __m512 wide = _mm512_loadu_ps(x);
    wide = _mm512_mask_mov_ps(wide, _mm512_cmp_ps_mask(wide, wide, _CMP_UNORD_Q), nan);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                        _mm512_maskz_cvtps_ph(0xffff, wide, _MM_FROUND_TO_NEAREST_INT));
  }
};
struct HalfBlock {
  static constexpr std::int64_t kSize = 8;
  [[gnu::target("arch=x86-64-v3")]] static void widen(const half* x, float* out) {
    _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))));
  }
  [[gnu::target("arch=x86-64-v3")]] static void narrow(const float* x, half* out) {
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));  // which becomes 0x7fff
    __m256 wide = _mm256_loadu_ps(x);
    wide = _mm256_blendv_ps(wide, nan, _mm256_cmp_ps(wide, wide, _CMP_UNORD_Q));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT));
  }
};
#elif defined(GRAPHSINK_ARM_HALVES)
// Every such processor has these conversions. Flushing of denormals (FPCR.FZ) does not reach halves: as floats they are
// normal, and a denormal float is less than half of the smallest.
struct HalfBlock {
  static constexpr std::int64_t kSize = 8;
  static void widen(const half* x, float* out) {
    const float16x8_t narrow = vreinterpretq_f16_u16(vld1q_u16(reinterpret_cast<const std::uint16_t*>(x)));
    vst1q_f32(out, vcvt_f32_f16(vget_low_f16(narrow)));
    vst1q_f32(out + 4, vcvt_high_f32_f16(narrow));
  }
  static void narrow(const float* x, half* out) {
    vst1q_u16(reinterpret_cast<std::uint16_t*>(out), vcombine_u16(narrow_4(x), narrow_4(x + 4)));
  }

 private:
  static uint16x4_t narrow_4(const float* x) {
    const float32x4_t wide = vld1q_f32(x);
    const uint16x4_t is_number = vmovn_u32(vceqq_f32(wide, wide));
    return vbsl_u16(is_number, vreinterpret_u16_f16(vcvt_f16_f32(wide)), vdup_n_u16(0x7fff));
  }
};
#endif

#ifdef GRAPHSINK_HALF_BLOCKS
// Calls compute(x, y) for blocks of the operands as floats, x[k][j], and of the results, y[j]. Compilers keep these in
// registers.
template <class Block, bool has_repeated, int N, class Compute>
inline std::int64_t map_half_blocks(std::int64_t n, const half* const (&in)[N], const std::int64_t* steps, half* out,
                                    const Compute compute) {
  const half* operands[N];
  float x[N][Block::kSize], y[Block::kSize];
  for (int k = 0; k < N; ++k) {
    operands[k] = in[k];
    if (has_repeated && steps[k] == 0) std::fill_n(x[k], Block::kSize, static_cast<float>(*in[k]));
  }
  std::int64_t i = 0;
  for (; i + Block::kSize <= n; i += Block::kSize) {
    for (int k = 0; k < N; ++k)
      if (!has_repeated || steps[k] != 0) Block::widen(operands[k] + i, x[k]);
    compute(x, y);
    Block::narrow(y, out + i);
  }
  return i;
}
#ifdef GRAPHSINK_VECTOR_LEVELS
template <bool has_repeated, int N, class Compute>
[[gnu::flatten, gnu::noinline, gnu::target("arch=x86-64-v4")]] std::int64_t map_half_avx512(
    std::int64_t n, const half* const (&in)[N], const std::int64_t* steps, half* out, const Compute& compute) {
  return map_half_blocks<LongHalfBlock, has_repeated>(n, in, steps, out, compute);
}
template <bool has_repeated, int N, class Compute>
[[gnu::flatten, gnu::noinline, gnu::target("arch=x86-64-v3")]] std::int64_t map_half_avx2(
    std::int64_t n, const half* const (&in)[N], const std::int64_t* steps, half* out, const Compute& compute) {
  return map_half_blocks<HalfBlock, has_repeated>(n, in, steps, out, compute);
}
#endif

// Computes with elements of the operands as floats: out[i] is apply(x) for x[k] = in[k][i * steps[k]], where a step is
// 0 or 1. Returns the number of elements done, of the first ones; all others are left to the caller.
template <int N, class Apply>
inline std::int64_t map_half(std::int64_t n, const half* const (&in)[N], const std::int64_t* steps, half* out,
                             const Apply& apply) {
  auto compute = [=]<std::size_t size>(const float(&x)[N][size], float(&y)[size]) {
#pragma GCC ivdep
    for (std::size_t j = 0; j < size; ++j) {
      float element[N];
      for (int k = 0; k < N; ++k) element[k] = x[k][j];
      y[j] = apply(element);
    }
  };
  const bool has_repeated = std::find(steps, steps + N, 0) != steps + N;
#ifdef GRAPHSINK_ARM_HALVES
  return (has_repeated ? map_half_blocks<HalfBlock, true, N, decltype(compute)>
                       : map_half_blocks<HalfBlock, false, N, decltype(compute)>)(n, in, steps, out, compute);
#else
  if (vector_level() == VectorLevel::avx512)
    return (has_repeated ? map_half_avx512<true, N, decltype(compute)>
                         : map_half_avx512<false, N, decltype(compute)>)(n, in, steps, out, compute);
  if (vector_level() == VectorLevel::avx2)
    return (has_repeated ? map_half_avx2<true, N, decltype(compute)>
                         : map_half_avx2<false, N, decltype(compute)>)(n, in, steps, out, compute);
  return 0;
#endif
}
#endif

#ifdef GRAPHSINK_VECTOR_LEVELS
// Each returns the number of elements done, all but the last few.
[[gnu::flatten, gnu::target("arch=x86-64-v4")]] inline std::int64_t widen_avx512(std::int64_t n, const half* x,
                                                                                 float* out) {
  std::int64_t i = 0;
  for (; i + LongHalfBlock::kSize <= n; i += LongHalfBlock::kSize) LongHalfBlock::widen(x + i, out + i);
  return i;
}
[[gnu::flatten, gnu::target("arch=x86-64-v4")]] inline std::int64_t narrow_avx512(std::int64_t n, const float* x,
                                                                                  half* out) {
  std::int64_t i = 0;
  for (; i + LongHalfBlock::kSize <= n; i += LongHalfBlock::kSize) LongHalfBlock::narrow(x + i, out + i);
  return i;
}
[[gnu::flatten, gnu::target("arch=x86-64-v3")]] inline std::int64_t widen_avx2(std::int64_t n, const half* x,
                                                                               float* out) {
  std::int64_t i = 0;
  for (; i + HalfBlock::kSize <= n; i += HalfBlock::kSize) HalfBlock::widen(x + i, out + i);
  return i;
}
[[gnu::flatten, gnu::target("arch=x86-64-v3")]] inline std::int64_t narrow_avx2(std::int64_t n, const float* x,
                                                                                half* out) {
  std::int64_t i = 0;
  for (; i + HalfBlock::kSize <= n; i += HalfBlock::kSize) HalfBlock::narrow(x + i, out + i);
  return i;
}
#endif

inline void widen(std::int64_t n, const half* x, float* out) {
  std::int64_t done = 0;
#ifdef GRAPHSINK_VECTOR_LEVELS
  if (vector_level() == VectorLevel::avx512) done = widen_avx512(n, x, out);
  if (vector_level() == VectorLevel::avx2) done = widen_avx2(n, x, out);
#elif defined(GRAPHSINK_ARM_HALVES)
  for (; done + HalfBlock::kSize <= n; done += HalfBlock::kSize) HalfBlock::widen(x + done, out + done);
#endif
  for_each_index(n - done, [=](std::int64_t i) { out[done + i] = x[done + i]; });
}
inline void narrow(std::int64_t n, const float* x, half* out) {
  std::int64_t done = 0;
#ifdef GRAPHSINK_VECTOR_LEVELS
  if (vector_level() == VectorLevel::avx512) done = narrow_avx512(n, x, out);
  if (vector_level() == VectorLevel::avx2) done = narrow_avx2(n, x, out);
#elif defined(GRAPHSINK_ARM_HALVES)
  for (; done + HalfBlock::kSize <= n; done += HalfBlock::kSize) HalfBlock::narrow(x + done, out + done);
#endif
  for_each_index(n - done, [=](std::int64_t i) { out[done + i] = half(x[done + i]); });
}

}  // namespace graphsink
