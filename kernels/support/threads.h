// How the threads of a kernel share elements and rows. Kernels that are compiled while the program runs include this,
// too: see scalar.h.
#pragma once

#include "graphsink/device_functions.h"
#include "kernels/support/block.h"

namespace graphsink {

// Calls of_element(i) for i in [0, size), each in one thread of the grid.
template <class F>
__device__ inline void for_each_element(std::int64_t size, const F& of_element) {
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) of_element(i);
}

// The number of elements that a thread handles at once; for f32 these are 128 bits.
constexpr int kPack = 4;
template <class T>
struct alignas(sizeof(T) * kPack < 16 ? sizeof(T) * kPack : 16) Pack {
  T elements[kPack];
};

// Calls of_pack(p) for elements [p * kPack, (p + 1) * kPack), and of_element(i) for those of [0, size) that are left.
// Tensors can be read in packs, because buffers are aligned to at least 64 bytes, which is more than a Pack has, and a
// view begins where its buffer does.
template <class OfPack, class OfElement>
__device__ inline void for_each_pack(std::int64_t size, const OfPack& of_pack, const OfElement& of_element) {
  const std::int64_t packs = size / kPack;
  for_each_element(packs, of_pack);
  const std::int64_t i = packs * kPack + thread_index();
  if (i < size) of_element(i);
}

// Where `accesses` tensors have element i of a result over whose dimensions they are walked, as Layout::find().
template <int accesses, int rank>
struct Offsets {
  std::int64_t dims[rank], first[accesses], strides[accesses][rank];

  __device__ void find(std::int64_t i, std::int64_t (&offsets)[accesses]) const {
    for (int k = 0; k < accesses; ++k) offsets[k] = first[k];
    for (int d = rank - 1; d >= 0; --d) {
      const std::int64_t outer = d > 0 ? quotient(i, dims[d]) : 0;
      const std::int64_t coordinate = i - outer * dims[d];
      for (int k = 0; k < accesses; ++k) offsets[k] += coordinate * strides[k][d];
      i = outer;
    }
  }
};

// Reads `x` from the lane whose number differs from this one's by the bits of `lanes`. Operations of reductions whose
// Value is not a number have one of these of their own.
template <class T>
__device__ inline T from_lane_xor(T x, int lanes) {
  return __shfl_xor_sync(kAllLanes, x, lanes);
}

// The threads that share a row: one, a warp, or a block of kBlock. Blocks have one dimension and consist of whole
// warps, and all threads of a block make the same calls of combine() and join().
template <int size>
struct RowGroup {
  static constexpr std::int64_t kSize = size;
  static constexpr int kWarps = size / kWarp;  // if it is more than one
  static __device__ std::int64_t lane() { return threadIdx.x % kSize; }
  static __device__ std::int64_t first_row() { return thread_index() / kSize; }
  static __device__ std::int64_t stride() { return all_threads() / kSize; }

  // Returns to all threads of the group what f makes of the values of all, two by two.
  template <class T, class F>
  static __device__ T combine(T x, const F& f) {
    if constexpr (size >= kWarp)
      for (int offset = kWarp / 2; offset > 0; offset /= 2) x = f(x, from_lane_xor(x, offset));
    if constexpr (size > kWarp) {
      __shared__ T of_warp[kWarps];
      if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = x;
      __syncthreads();
      x = of_warp[0];
      for (int w = 1; w < kWarps; ++w) x = f(x, of_warp[w]);
      __syncthreads();  // before the next call uses the memory again
    }
    return x;
  }
  template <class T>
  static __device__ T sum(T x) {
    return combine(x, [](T a, T b) { return a + b; });
  }

  // Joins the Values of all threads by Op::join() and returns the result to the first.
  template <class Op>
  static __device__ typename Op::Value join(typename Op::Value x) {
    const auto by_warp = [](typename Op::Value value) {
      for (int offset = kWarp / 2; offset > 0; offset /= 2) value = Op::join(value, from_lane_xor(value, offset));
      return value;
    };
    if constexpr (size >= kWarp) x = by_warp(x);
    if constexpr (size > kWarp) {
      __shared__ typename Op::Value of_warp[kWarps];
      if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = x;
      __syncthreads();
      if (threadIdx.x < kWarp) x = by_warp(threadIdx.x < kWarps ? of_warp[threadIdx.x] : Op::none());
      __syncthreads();
    }
    return x;
  }
};
constexpr int kBlock = 256;
using ByThread = RowGroup<1>;
using ByWarp = RowGroup<kWarp>;
using ByBlock = RowGroup<kBlock>;

}  // namespace graphsink
