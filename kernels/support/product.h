// Products of batches of matrices, for the ops that are made of them.
#pragma once

#include "graphsink/cuda.h"
#include "kernels/support/layout.h"

namespace graphsink {

// out[m, n] = lhs x rhs for each matrix of a batch. All are row-major and dense; lhs is [m, k], or [k, m] if
// transposed, rhs is [k, n], or [n, k]. The matrices of the result lie in one piece of memory without gaps, in any
// order; those of an operand may repeat.
struct Product {
  DType dtype = DType::f32;  // of the operands; sums of f16 and bf16 are f32
  bool f32_out = false;      // the result of f16 and bf16 is f32, else rounded to their dtype
  bool tf32 = false;         // f32 only: a GPU may round the operands to TF32
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  Layout<3> batches;             // in which elements of lhs, rhs and out the matrices begin
  std::int64_t alignment = 256;  // of the three pointers, in bytes
  DType out_dtype() const { return f32_out ? DType::f32 : dtype; }
};

struct PreparedProduct {
  Product product;
  std::shared_ptr<const void> plan;  // of cuBLASLt
  std::size_t workspace = 0;
};

// Call in prepare(). Throws Error naming the op.
PreparedProduct prepare_product(const PrepareArgs& p, const Product& product);

// `workspace` has the bytes that prepare_product() asked for. With `adds` the product is
// added to `out`; on the CPU and of f32 and f64 only.
void run_product(const CpuArgs& a, const PreparedProduct& prepared, const void* lhs, const void* rhs, void* out,
                 void* workspace, bool adds = false);
void run_product(CudaArgs& a, const PreparedProduct& prepared, const void* lhs, const void* rhs, void* out,
                 void* workspace);

}  // namespace graphsink
