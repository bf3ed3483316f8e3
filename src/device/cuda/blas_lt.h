// Matrix products by cuBLASLt; the only header that kernels need for them.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "graphsink/cuda.h"
#include "graphsink/op.h"

namespace graphsink {

// out[m, n] = lhs x rhs, all row-major and dense. lhs is [m, k], or [k, m] if transposed; rhs is [k, n], or [n, k].
struct MatmulSpec {
  DType dtype = DType::f32;  // a float; sums of f16 and bf16 are f32
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool tf32 = false;                               // f32 is computed in TF32, else in f32
  std::int64_t batches = 1;                        // at most 2^31 - 1
  std::array<std::int64_t, 3> batch_strides = {};  // of lhs, rhs and out, in elements
  std::size_t alignment = 256;                     // of the three pointers, in bytes
  bool f32_out = false;                            // the result of f16 and bf16 is f32, else of their dtype
  DType out_dtype() const { return f32_out ? DType::f32 : dtype; }
  auto operator<=>(const MatmulSpec&) const = default;
};

// Chooses the algorithm, always the same one for the same shapes and device, and loads its kernels. Call in prepare()
// on a CudaDevice. Precondition: k > 0. Throws Error naming the op.
Prepared prepare_matmul(const MatmulSpec& spec, const PrepareArgs& args);

// Enqueues `plan`, the data that prepare_matmul() returned. Pointers are device memory, aligned as its spec says;
// `workspace` has the bytes it asked for.
void run_matmul(const CudaArgs& a, const void* plan, const void* lhs, const void* rhs, void* out, void* workspace);

}  // namespace graphsink
