// Matrix products by cuBLASLt; the only header that kernels need for them.
#pragma once

#include <compare>
#include <cstdint>

#include "graphsink/cuda.h"
#include "graphsink/op.h"

namespace graphsink {

// out[m, n] = lhs x rhs, all row-major and dense. lhs is [m, k], or [k, m] if transposed; rhs is [k, n], or [n, k].
struct MatmulSpec {
  DType dtype = DType::f32;  // f32 or f64; f32 is computed in f32, never in TF32
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  auto operator<=>(const MatmulSpec&) const = default;
};

// Chooses the algorithm, always the same one for the same shapes and device, and loads its kernels. Call in prepare()
// on a CudaDevice. Precondition: k > 0. Throws Error naming the op.
Prepared prepare_matmul(const MatmulSpec& spec, const PrepareArgs& args);

// Enqueues what prepare_matmul() chose. Pointers are device memory, 256-byte aligned.
void run_matmul(const CudaArgs& a, const void* lhs, const void* rhs, void* out);

}  // namespace graphsink
