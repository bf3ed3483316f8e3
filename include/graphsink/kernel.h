// Basic functions for CUDA bodies and their kernels: the size of a launch, loading before a capture, C++ types for
// dtypes, and failing the step. The functions for kernels are there in .cu files, which a CUDA compiler, or
// that of the software device, sees. See samples/04_custom_cuda_op.cu.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "graphsink/cuda.h"
#include "graphsink/device_functions.h"
#include "graphsink/op.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// --- launches

// The size of a launch for a number of independent items. There may be fewer threads than items, so that kernels are
// written as a loop:
//   for (std::int64_t i = thread_index(); i < items; i += all_threads()) ...
// Without items the launch is empty.
inline LaunchSize launch_size(std::int64_t items) {
  std::int64_t threads = std::clamp<std::int64_t>((items + 31) / 32 * 32, 32, LaunchSize::kThreads);
  std::int64_t blocks = std::min((items + threads - 1) / threads, LaunchSize::kMaxBlocks);
  return {{static_cast<unsigned>(blocks), 1, 1}, {static_cast<unsigned>(threads), 1, 1}};
}

// CUDA loads a kernel at its first use, which must not fall into a capture: OpDef::prepare loads it with this. Does
// nothing if the CPU body will run. Throws Error if the program was not built for this GPU.
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
// OpDef::prepare of an op that launches these kernels and has nothing else to prepare:
// load_kernels<my_kernel<float>, my_kernel<double>>. Throws Error as load_kernel() does.
template <auto... kernels>
Prepared load_kernels(const PrepareArgs& p) {
  (load_kernel(p, kernels), ...);
  return {};
}

// --- dtypes

// The dtype of a C++ type. The unsigned types stand for i32 and i64 where integers are added and multiplied, because
// they wrap around.
template <class T>
constexpr DType element_dtype() {
  if constexpr (std::is_same_v<T, std::uint32_t>) {
    return DType::i32;
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return DType::i64;
  } else {
    return dtype_of<T>();
  }
}

// Calls body.operator()<T>() for the T among Ts whose dtype this is:
//   for_dtype<float, double, half, bfloat16>(dtype, [&]<class T>() { launch<T>(a); });
// There must be one: infer() refuses other dtypes with expect_dtype().
template <class... Ts, class Body>
void for_dtype(DType dtype, const Body& body) {
  bool is_found = ((dtype == element_dtype<Ts>() && (body.template operator()<Ts>(), true)) || ...);
  if (!is_found) throw std::logic_error("no body for " + std::string(to_string(dtype)));
}

// For infer(): throws Error if the dtype of an operand is not that of one of Ts.
template <class... Ts>
void expect_dtype(InferArgs& a, int operand) {
  DType dtype = a.in(operand).dtype;
  bool is_taken = ((dtype == element_dtype<Ts>()) || ...);
  if (is_taken) return;
  std::string taken;
  ((taken += (taken.empty() ? "" : ", ") + std::string(to_string(element_dtype<Ts>()))), ...);
  a.fail("takes " + taken, "cast() the operands to one of these that holds their numbers");
}

// --- steps that fail

// In a CPU body: the step commits nothing, and the Error that reports it names this node, the reason and the index. The
// first node that fails is reported. On the host of a GPU this throws, which has the same effect.
inline void fail_step(const CpuArgs& a, int node, StepError error, std::int64_t index) {
  if (!a.has_step()) throw std::runtime_error(to_string(error, index));
  StepBlock* step = a.step();
  std::atomic_ref(step->ok).store(0);
  std::int32_t none = -1;
  if (!std::atomic_ref(step->error_node).compare_exchange_strong(none, node)) return;
  step->error_step = step->step;
  step->error = error;
  step->error_index = index;
}
// The same for the node of the body.
inline void fail_step(const CpuArgs& a, StepError error, std::int64_t index) { fail_step(a, a.id(), error, index); }

#if defined(GRAPHSINK_CAN_LAUNCH) || defined(GRAPHSINK_HOST_KERNELS)

// In a kernel: the same. `step` is CudaArgs::step() and `node` is CudaArgs::id().
__device__ inline void fail_step(StepBlock* step, int node, StepError error, std::int64_t index) {
  atomicExch(&step->ok, 0u);
  if (atomicCAS(&step->error_node, -1, node) != -1) return;
  step->error_step = step->step;
  step->error = error;
  step->error_index = index;
}

#endif

}  // namespace graphsink
