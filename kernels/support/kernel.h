// The common header of all kernel files. The same kernel file is compiled by nvcc, by a C++ compiler with
// host_builtins.h in front, and by a C++ compiler against the software CUDA device of the tests.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "base/vector_level.h"
#include "device/host_memory.h"
#include "graphsink/kernel.h"
#include "kernels/support/scalar.h"

namespace graphsink {

constexpr std::int64_t kThreads = LaunchSize::kThreads, kMaxBlocks = LaunchSize::kMaxBlocks;

// Returns the axis counted from the front. An op also accepts axes counted from the end: -1 is the last one.
inline int from_front(int axis, int rank) { return axis < 0 ? axis + rank : axis; }
// Also throws Error if a tensor of this rank does not have the axis.
inline int axis_from_front(const InferArgs& a, int axis, int rank) {
  int d = from_front(axis, rank);
  if (d < 0 || d >= rank) a.fail("there is no axis " + std::to_string(axis), "name an axis from -rank to rank - 1");
  return d;
}

constexpr std::int64_t kVectorBlock = 16;
constexpr std::int64_t kShortRow = 4;  // fewer elements are not worth a call

// `body` is a copy that nothing else knows of, so compilers can keep what it has captured in registers while it writes.
template <class Body>
inline void for_each_index_in_blocks(std::int64_t n, const Body body) {
  std::int64_t i = 0;
  for (; i + kVectorBlock <= n; i += kVectorBlock) {
#ifndef __clang__
#pragma GCC ivdep
#ifndef __CUDACC__
#pragma GCC unroll 1  // if it were unrolled early, the vectorizer would no longer find a loop
#endif
#endif
    for (std::int64_t j = 0; j < kVectorBlock; ++j) body(i + j);
  }
  for (; i < n; ++i) body(i);
}

// Term i belongs to lane i % kLanes. The lanes are independent, so that an addition need not wait for the one before.
constexpr std::int64_t kLanes = 32;

// Compilers keep the lanes in registers if they are a local array of the caller.
template <class Value, class Add>
inline void add_to_lanes(std::int64_t n, Value (&lanes)[kLanes], const Add& add) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#ifndef __clang__
#pragma GCC ivdep
#ifndef __CUDACC__
#pragma GCC unroll 1
#endif
#endif
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] = add(lanes[j], i + j);
  }
  for (std::int64_t j = 0; j < kLanes && i < n; ++i, ++j) lanes[j] = add(lanes[j], i);
}

// Joins each lane of the first half with that of the second half, then of the first quarter with the second, and so on.
// These loops have a known length, so compilers make vector code of them.
template <std::int64_t lanes = kLanes, class Value, class Join>
inline Value join_lanes(Value* values, const Join& join) {
  constexpr std::int64_t kHalf = lanes / 2;
  if constexpr (kHalf == 0) {
    return values[0];
  } else {
    Value joined[kHalf];
    for (std::int64_t i = 0; i < kHalf; ++i) joined[i] = join(values[i], values[i + kHalf]);
    return join_lanes<kHalf>(joined, join);
  }
}

template <class Value, class Add, class Join>
inline Value reduce_in_lanes_in_blocks(std::int64_t n, Value none, const Add add, const Join join) {
  Value lanes[kLanes];
  std::fill_n(lanes, kLanes, none);
  add_to_lanes(n, lanes, add);
  return join_lanes(lanes, join);
}

// Loops are compiled for three vector widths, and vector_level() chooses one at run time. All give the same bits,
// because nothing is contracted or reordered. The baseline has no instruction for a fused multiply-add and calls the C
// library, which takes much longer. Builds with sanitizers have one width, because their speed does not matter; so do
// builds with clang.
// A body is passed by reference and copied where it is used. A call by value would copy it with loads that are wider
// than the stores that have just written it. Processors cannot forward these to such a load, which waits until they are
// in the cache: 13 ns a call for a body that has captured 8 numbers, on an AMD EPYC (Zen 4).
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GRAPHSINK_VECTOR_LEVELS
template <class Body>
[[gnu::flatten, gnu::noinline, gnu::target("arch=x86-64-v4")]] void for_each_index_avx512(std::int64_t n,
                                                                                          const Body& body) {
  for_each_index_in_blocks(n, body);
}
template <class Body>
[[gnu::flatten, gnu::noinline, gnu::target("arch=x86-64-v3")]] void for_each_index_avx2(std::int64_t n,
                                                                                        const Body& body) {
  for_each_index_in_blocks(n, body);
}
template <class Body>
[[gnu::flatten, gnu::noinline]] void for_each_index_baseline(std::int64_t n, const Body& body) {
  for_each_index_in_blocks(n, body);
}
template <class Value, class Add, class Join>
[[gnu::flatten, gnu::noinline, gnu::target("arch=x86-64-v4")]] Value reduce_in_lanes_avx512(std::int64_t n, Value none,
                                                                                            const Add& add,
                                                                                            const Join& join) {
  return reduce_in_lanes_in_blocks(n, none, add, join);
}
template <class Value, class Add, class Join>
[[gnu::flatten, gnu::noinline, gnu::target("arch=x86-64-v3")]] Value reduce_in_lanes_avx2(std::int64_t n, Value none,
                                                                                          const Add& add,
                                                                                          const Join& join) {
  return reduce_in_lanes_in_blocks(n, none, add, join);
}
template <class Value, class Add, class Join>
[[gnu::flatten, gnu::noinline]] Value reduce_in_lanes_baseline(std::int64_t n, Value none, const Add& add,
                                                               const Join& join) {
  return reduce_in_lanes_in_blocks(n, none, add, join);
}
#endif

// Calls body(i) for i in [0, n). The calls are grouped in blocks of a fixed length, which compilers turn into vector
// code. Iterations must not depend on one another, but an iteration may read and write one element in place.
template <class Body>
inline void for_each_index(std::int64_t n, const Body& body) {
  if (n >= kShortRow) {
#ifdef GRAPHSINK_VECTOR_LEVELS
    if (vector_level() == VectorLevel::avx512) return for_each_index_avx512(n, body);
    if (vector_level() == VectorLevel::avx2) return for_each_index_avx2(n, body);
    return for_each_index_baseline(n, body);
#else
    return for_each_index_in_blocks(n, body);
#endif
  }
  for (std::int64_t i = 0; i < n; ++i) body(i);
}

// Joins the terms from 0 to n - 1, in vector code like for_each_index(): each lane begins with `none`, term i becomes
// part of lane i % kLanes by add(lane, i), and then the lanes are joined, in an order that is always the same. `join`
// must be a lambda, so that it is inlined.
template <class Value, class Add, class Join>
inline Value reduce_in_lanes(std::int64_t n, Value none, const Add& add, const Join& join) {
#ifdef GRAPHSINK_VECTOR_LEVELS
  if (vector_level() == VectorLevel::avx512) return reduce_in_lanes_avx512(n, none, add, join);
  if (vector_level() == VectorLevel::avx2) return reduce_in_lanes_avx2(n, none, add, join);
  return reduce_in_lanes_baseline(n, none, add, join);
#else
  return reduce_in_lanes_in_blocks(n, none, add, join);
#endif
}

// Whether is_true(i) for any i from 0 to n - 1; it is called for all.
template <class IsTrue>
inline bool any_of_indices(std::int64_t n, const IsTrue& is_true) {
  return reduce_in_lanes(
             n, std::uint32_t{0},
             [=](std::uint32_t any, std::int64_t i) { return any | static_cast<std::uint32_t>(is_true(i)); },
             [](std::uint32_t a, std::uint32_t b) { return a | b; }) != 0;
}

}  // namespace graphsink
