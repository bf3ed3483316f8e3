// Products of batches of matrices, for ops that consist of them.
#pragma once

#include "graphsink/cuda.h"
#include "kernels/support/layout.h"

namespace graphsink {

// Describes out[m, n] = lhs x rhs for each matrix of a batch. All matrices are row-major and dense. lhs is [m, k], or
// [k, m] if transposed; rhs is [k, n], or [n, k] if transposed. The matrices of the result fill one piece of memory
// without gaps, in any order. The matrices of an operand may repeat.
struct MatrixProduct {
  DType dtype = DType::f32;  // type of the operands; products of f16 and bf16 are summed in f32
  // The result of an f16 or bf16 product is f32; if false, it is rounded to the dtype of the operands.
  bool f32_out = false;
  bool tf32 = false;  // only for f32: a GPU may round the operands to TF32
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  Layout<3> batches;             // the elements of lhs, rhs and out at which the matrices begin
  std::int64_t alignment = 256;  // bytes to which the three pointers are aligned
  DType out_dtype() const { return f32_out ? DType::f32 : dtype; }
};

struct PreparedProduct {
  MatrixProduct product;
  std::shared_ptr<const void> plan;  // the plan for cuBLASLt
  std::size_t workspace = 0;
};

// Chooses how to compute the product. Call it in prepare(). Throws Error, naming the op.
PreparedProduct prepare_product(const PrepareArgs& p, const MatrixProduct& product);

// A piece of a product on the CPU: batches [first_batch, end_batch), of each the rows [first_row, end_row) and the
// columns [first_column, end_column).
struct ProductTile {
  std::int64_t first_batch = 0, end_batch = 0, first_row = 0, end_row = 0, first_column = 0, end_column = 0;
};
// The tiles into which the CPU divides a product: see struct Tiles. A product of 16-bit operands is one tile, because
// it needs the workspace.
std::int64_t count_product_tiles(const MatrixProduct& product);
ProductTile product_tile(const MatrixProduct& product, std::int64_t tile);
// Computes one tile, as run_product() does.
void run_product_tile(const PreparedProduct& prepared, const ProductTile& tile, const void* lhs, const void* rhs,
                      void* out, void* workspace, bool adds = false);

// Computes the product. `workspace` has the number of bytes that prepare_product() asked for. With `adds`, the product
// is added to `out`; this is supported only on the CPU, for f32 and f64.
void run_product(const CpuArgs& a, const PreparedProduct& prepared, const void* lhs, const void* rhs, void* out,
                 void* workspace, bool adds = false);
void run_product(CudaArgs& a, const PreparedProduct& prepared, const void* lhs, const void* rhs, void* out,
                 void* workspace);

}  // namespace graphsink
