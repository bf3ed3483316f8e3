// Matrix products by cuBLASLt. Kernels that need them include only this header.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "graphsink/cuda.h"
#include "graphsink/op.h"

namespace graphsink {

// Describes a product out[m, n] = lhs x rhs. All matrices are row-major and dense. lhs is [m, k], or [k, m] if
// transposed; rhs is [k, n], or [n, k] if transposed.
struct MatmulSpec {
  DType dtype = DType::f32;  // a floating-point type; products of f16 and bf16 are summed in f32
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool tf32 = false;                               // compute f32 products in TF32; if false, in f32
  std::int64_t batches = 1;                        // at most 2^31 - 1
  std::array<std::int64_t, 3> batch_strides = {};  // strides between batches of lhs, rhs and out, in elements
  std::size_t alignment = 256;                     // alignment of each of the three pointers, in bytes
  bool f32_out = false;  // the result of an f16 or bf16 product is f32; if false, it has the dtype of the operands
  DType out_dtype() const { return f32_out ? DType::f32 : dtype; }
  auto operator<=>(const MatmulSpec&) const = default;
};

// Chooses the algorithm and prepares its kernels. The algorithm is always the same for the same spec and device. If the
// first step may skip the op, the kernels are loaded here. Call it in prepare() on a CudaDevice. Precondition: k > 0.
// Throws Error, naming the op.
Prepared prepare_matmul(const MatmulSpec& spec, const PrepareArgs& args);

// Enqueues the product on the stream of `a`. `plan` is the data that prepare_matmul() returned. The pointers are device
// memory, aligned as the spec says; `workspace` has the number of bytes that prepare_matmul() asked for.
void run_matmul(const CudaArgs& a, const void* plan, const void* lhs, const void* rhs, void* out, void* workspace);

}  // namespace graphsink
