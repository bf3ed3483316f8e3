// What every kernel file starts from. The same file is compiled by nvcc, by a C++ compiler with host_builtins.h in
// front, and by a C++ compiler against the software CUDA device of the tests.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "base/vector_level.h"
#include "device/host_memory.h"
#include "device/wait_for_inputs.h"
#include "graphsink/cuda.h"
#include "graphsink/op.h"
#include "kernels/support/host_math.h"

#define HD GRAPHSINK_ON_BOTH inline

namespace graphsink {

constexpr std::int64_t kThreads = 256;     // of a block, unless there is less to do
constexpr std::int64_t kMaxBlocks = 4096;  // kernels stride over the grid

// Blocks and threads for so many independent items.
struct LaunchSize {
  Extent grid, block;
};
inline LaunchSize launch_size(std::int64_t items) {
  std::int64_t threads = std::clamp<std::int64_t>((items + 31) / 32 * 32, 32, kThreads);
  std::int64_t blocks = std::min((items + threads - 1) / threads, kMaxBlocks);
  return {{static_cast<unsigned>(blocks), 1, 1}, {static_cast<unsigned>(threads), 1, 1}};
}
__device__ inline std::int64_t thread_index() { return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline std::int64_t all_threads() { return std::int64_t{gridDim.x} * blockDim.x; }

// a / b of non-negative numbers: 64-bit division is slow on GPUs.
HD std::int64_t quotient(std::int64_t a, std::int64_t b) {
  bool is_small = a <= 0xffffffff && b <= 0xffffffff;
  return is_small ? std::int64_t{static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b)} : a / b;
}

// The step commits nothing; the first to fail leaves its node and why.
__device__ inline void fail_step(StepBlock* step, int node, StepError error, std::int64_t index) {
  atomicExch(&step->ok, 0u);
  if (atomicCAS(&step->error_node, -1, node) != -1) return;
  step->error_step = step->step;
  step->error = error;
  step->error_index = index;
}
// On the CPU. A body that runs on the host of another device has no step block: there the exception fails the step.
inline void fail_step(const CpuArgs& a, int node, StepError error, std::int64_t index) {
  StepBlock* step = a.step();
  if (step == nullptr) throw std::runtime_error(to_string(error, index));
  std::atomic_ref(step->ok).store(0);
  std::int32_t none = -1;
  if (!std::atomic_ref(step->error_node).compare_exchange_strong(none, node)) return;
  step->error_step = step->step;
  step->error = error;
  step->error_index = index;
}
inline void fail_step(const CpuArgs& a, StepError error, std::int64_t index) {
  fail_step(a, a.node().id, error, index);
}

// Loads kernels: a kernel's first use must not fall into a recording.
template <class... P>
void load_kernel([[maybe_unused]] const PrepareArgs& p, [[maybe_unused]] void (*kernel)(P...)) {
#ifdef GRAPHSINK_CAN_LAUNCH
  cudaFuncAttributes attributes;
  cudaError_t code = p.cuda ? cudaFuncGetAttributes(&attributes, kernel) : cudaSuccess;
  if (code != cudaSuccess) {
    (void)cudaGetLastError();  // reported here
    throw Error(std::string(p.op), p.where,
                std::string("its kernel cannot be loaded: cudaFuncGetAttributes returned ") + cudaGetErrorName(code) +
                    " (" + cudaGetErrorString(code) + ")",
                "build for the compute capability of this device");
  }
#endif
}
// OpDef::prepare of ops that have nothing else to prepare.
template <auto... kernels>
Prepared load_kernels(const PrepareArgs& p) {
  (load_kernel(p, kernels), ...);
  return {};
}

// The axes of ops may be counted from the end: -1 is the last one.
inline int from_front(int axis, int rank) { return axis < 0 ? axis + rank : axis; }
// The same; refuses an axis that a tensor of that rank does not have.
inline int axis_from_front(const InferArgs& a, int axis, int rank) {
  int d = from_front(axis, rank);
  if (d < 0 || d >= rank) a.fail("there is no axis " + std::to_string(axis), "name an axis from -rank to rank - 1");
  return d;
}

// The same names for floats and doubles, on both sides; the ops of these names hide those of <cmath>.
namespace math {
#ifdef __CUDA_ARCH__
HD float exp(float x) { return ::expf(x); }
HD float tanh(float x) { return ::tanhf(x); }
HD double tanh(double x) { return ::tanh(x); }
#else
HD float exp(float x) { return host_math::exp(x); }
HD float tanh(float x) { return host_math::tanh(x); }
HD double tanh(double x) { return host_math::tanh(x); }
#endif
HD double exp(double x) { return ::exp(x); }
HD float abs(float x) { return ::fabsf(x); }
HD double abs(double x) { return ::fabs(x); }
HD float log(float x) { return ::logf(x); }
HD double log(double x) { return ::log(x); }
HD float sqrt(float x) { return ::sqrtf(x); }
HD double sqrt(double x) { return ::sqrt(x); }
HD float pow(float x, float y) { return ::powf(x, y); }
HD double pow(double x, double y) { return ::pow(x, y); }
HD float sin(float x) { return ::sinf(x); }
HD double sin(double x) { return ::sin(x); }
HD float cos(float x) { return ::cosf(x); }
HD double cos(double x) { return ::cos(x); }
HD float floor(float x) { return ::floorf(x); }
HD double floor(double x) { return ::floor(x); }
HD float ceil(float x) { return ::ceilf(x); }
HD double ceil(double x) { return ::ceil(x); }
HD float rint(float x) { return ::rintf(x); }
HD double rint(double x) { return ::rint(x); }
HD float erf(float x) { return ::erff(x); }
HD double erf(double x) { return ::erf(x); }
template <class T>
HD T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}
// Infinities and NaNs are not their own difference.
template <class T>
HD bool is_finite(T x) {
  return x - x == T(0);
}
}  // namespace math

constexpr std::int64_t kVectorBlock = 16;

template <class Body>
inline void for_each_index_in_blocks(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kVectorBlock <= n; i += kVectorBlock) {
#ifndef __clang__
#pragma GCC ivdep
#ifndef __CUDACC__
#pragma GCC unroll 1  // unrolled early, the block would be no loop when vector code is made
#endif
#endif
    for (std::int64_t j = 0; j < kVectorBlock; ++j) body(i + j);
  }
  for (; i < n; ++i) body(i);
}

// The loop is compiled for three widths of vectors, and vector_level() chooses. The bits are the same in all, because
// nothing is contracted or reordered. Builds with sanitizers or line counts, whose speed does not matter, and those of
// clang have one width.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__CUDACC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && !defined(GRAPHSINK_COVERAGE)
#define GRAPHSINK_VECTOR_LEVELS
template <class Body>
[[gnu::flatten, gnu::noinline, gnu::target("arch=x86-64-v4")]] void for_each_index_avx512(std::int64_t n, Body body) {
  for_each_index_in_blocks(n, body);
}
template <class Body>
[[gnu::flatten, gnu::noinline, gnu::target("arch=x86-64-v3")]] void for_each_index_avx2(std::int64_t n, Body body) {
  for_each_index_in_blocks(n, body);
}
template <class Body>
[[gnu::flatten, gnu::noinline]] void for_each_index_baseline(std::int64_t n, Body body) {
  for_each_index_in_blocks(n, body);
}
#endif

// Calls body(i) for i in [0, n), in blocks whose length is known, which compilers turn into vector code. Iterations may
// not depend on one another; reading and writing one element in place is fine.
template <class Body>
inline void for_each_index(std::int64_t n, const Body& body) {
  if (n >= kVectorBlock) {
#ifdef GRAPHSINK_VECTOR_LEVELS
    if (vector_level() == VectorLevel::avx512) return for_each_index_avx512(n, body);
    if (vector_level() == VectorLevel::avx2) return for_each_index_avx2(n, body);
    return for_each_index_baseline(n, body);
#else
    return for_each_index_in_blocks(n, body);
#endif
  }
  for (std::int64_t i = 0; i < n; ++i) body(i);  // not worth a call
}

}  // namespace graphsink
