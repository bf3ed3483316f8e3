// cublas_v2.h: handles, cublasSgemm and cublasSgemmStridedBatched, which run the same kernel as cublasLtMatmul.
#include <cublas_v2.h>

#include <algorithm>

#include "blas.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;  // the caller's; null for the library's own, of which nothing shows here
  std::size_t workspace_bytes = 0;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  cublasAtomicsMode_t atomics_mode = CUBLAS_ATOMICS_NOT_ALLOWED;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
};

namespace emu {
namespace {

// body(handle, runtime, lock) for a live handle.
template <class F>
cublasStatus_t with_handle(const char* name, cublasHandle_t handle, const F& body) {
  return blas(name, [&](Runtime& r, Lock& lock) -> cublasStatus_t {
    if (!r.blas_handles.contains(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    return body(*handle, r, lock);
  });
}

template <class T>
cublasStatus_t get(const char* name, cublasHandle_t handle, T cublasContext::*field, T* value) {
  return with_handle(name, handle, [&](cublasContext& context, Runtime&, Lock&) {
    if (value == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *value = context.*field;
    return CUBLAS_STATUS_SUCCESS;
  });
}

template <class T>
cublasStatus_t set(const char* name, cublasHandle_t handle, T cublasContext::*field, T value, bool is_known) {
  return with_handle(name, handle, [&](cublasContext& context, Runtime&, Lock&) {
    if (!is_known) return CUBLAS_STATUS_INVALID_VALUE;
    context.*field = value;
    return CUBLAS_STATUS_SUCCESS;
  });
}

// The arguments of cublasSgemmStridedBatched, column-major: op(A) is m x k, op(B) k x n, C m x n.
struct Gemm {
  cublasOperation_t transa, transb;
  std::int64_t m, n, k;
  const float* alpha;
  const float* a;
  std::int64_t lda, stride_a;
  const float* b;
  std::int64_t ldb, stride_b;
  const float* beta;
  float* c;
  std::int64_t ldc, stride_c;
  std::int64_t batches;
};

bool is_operation(cublasOperation_t op) { return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C; }

bool has_valid_sizes(const Gemm& g) {
  if (!is_operation(g.transa) || !is_operation(g.transb)) return false;
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batches < 0) return false;
  const std::int64_t rows_a = g.transa == CUBLAS_OP_N ? g.m : g.k, rows_b = g.transb == CUBLAS_OP_N ? g.k : g.n;
  const auto fits = [](std::int64_t ld, std::int64_t rows) { return ld >= std::max<std::int64_t>(1, rows); };
  return fits(g.lda, rows_a) && fits(g.ldb, rows_b) && fits(g.ldc, g.m) && g.stride_a >= 0 && g.stride_b >= 0 &&
         g.stride_c >= 0;
}

BlasLayout layout(std::int64_t rows, std::int64_t cols, bool transposed, std::int64_t ld, std::int64_t stride,
                  std::int64_t batches) {
  if (transposed) std::swap(rows, cols);
  return {CUDA_R_32F,
          CUBLASLT_ORDER_COL,
          static_cast<std::uint64_t>(rows),
          static_cast<std::uint64_t>(cols),
          ld,
          static_cast<std::int32_t>(batches),
          stride};
}

cublasStatus_t gemm(const cublasContext& context, Runtime& r, Lock& lock, const Gemm& g) {
  if (!has_valid_sizes(g) || g.alpha == nullptr || g.beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (g.m == 0 || g.n == 0 || g.batches == 0) return CUBLAS_STATUS_SUCCESS;
  const bool ta = g.transa != CUBLAS_OP_N, tb = g.transb != CUBLAS_OP_N;
  const bool by_host = context.pointer_mode == CUBLAS_POINTER_MODE_HOST;
  Matmul m{};
  m.operation.compute =
      context.math_mode == CUBLAS_TF32_TENSOR_OP_MATH ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  m.operation.scale = CUDA_R_32F;
  m.operation.pointer_mode = by_host ? CUBLASLT_POINTER_MODE_HOST : CUBLASLT_POINTER_MODE_DEVICE;
  m.operation.transa = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
  m.operation.transb = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
  // BLAS does not read A and B where nothing of them is added.
  const bool has_terms = g.k > 0 && !(by_host && *g.alpha == 0);
  const std::int64_t k = has_terms ? g.k : 0;
  m.a = layout(g.m, k, ta, g.lda, g.stride_a, g.batches);
  m.b = layout(k, g.n, tb, g.ldb, g.stride_b, g.batches);
  m.c = m.d = layout(g.m, g.n, false, g.ldc, g.stride_c, g.batches);
  m.a_data = has_terms ? g.a : nullptr;
  m.b_data = has_terms ? g.b : nullptr;
  m.c_data = m.d_data = g.c;
  m.workspace = context.workspace;
  m.workspace_bytes = context.workspace_bytes;
  set_factors(m, g.alpha, g.beta);
  if (g.c == nullptr || (has_terms && (g.a == nullptr || g.b == nullptr))) return CUBLAS_STATUS_INVALID_VALUE;
  if (!is_clear_target(m) || !operands_live(r.memory, m)) return CUBLAS_STATUS_INVALID_VALUE;
  return issue_matmul(r, lock, m, context.stream);
}

}  // namespace
}  // namespace emu

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  return emu::create_blas<cublasContext>("cublasCreate_v2", handle,
                                         [](cublasContext&) { return CUBLAS_STATUS_SUCCESS; });
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  return emu::destroy_blas<cublasContext>("cublasDestroy_v2", handle, CUBLAS_STATUS_NOT_INITIALIZED);
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int* version) {
  return emu::with_handle("cublasGetVersion_v2", handle, [&](cublasContext&, emu::Runtime&, emu::Lock&) {
    if (version == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
  });
}

// A workspace belongs to a stream: choosing a stream takes the library's own workspace again, as NVIDIA's manual says.
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  return emu::with_handle("cublasSetStream_v2", handle, [&](cublasContext& context, emu::Runtime&, emu::Lock&) {
    context.stream = stream;
    context.workspace = nullptr;
    context.workspace_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  return emu::get("cublasGetStream_v2", handle, &cublasContext::stream, stream);
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  return emu::with_handle("cublasSetWorkspace_v2", handle, [&](cublasContext& context, emu::Runtime&, emu::Lock&) {
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0;
    if (!is_aligned || (workspace == nullptr && bytes > 0)) return CUBLAS_STATUS_INVALID_VALUE;
    context.workspace = workspace;
    context.workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  const bool is_known = mode == CUBLAS_POINTER_MODE_HOST || mode == CUBLAS_POINTER_MODE_DEVICE;
  return emu::set("cublasSetPointerMode_v2", handle, &cublasContext::pointer_mode, mode, is_known);
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  return emu::get("cublasGetPointerMode_v2", handle, &cublasContext::pointer_mode, mode);
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
  const bool is_known = mode == CUBLAS_ATOMICS_NOT_ALLOWED || mode == CUBLAS_ATOMICS_ALLOWED;
  return emu::set("cublasSetAtomicsMode", handle, &cublasContext::atomics_mode, mode, is_known);
}

cublasStatus_t cublasGetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t* mode) {
  return emu::get("cublasGetAtomicsMode", handle, &cublasContext::atomics_mode, mode);
}

// Of the modes that allow less precision, only that of TF32 changes results here.
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  const int kind = mode & ~CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  const bool is_known = (kind >= CUBLAS_DEFAULT_MATH && kind <= CUBLAS_FP32_EMULATED_BF16X9_MATH) ||
                        kind == CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH;
  return emu::set("cublasSetMathMode", handle, &cublasContext::math_mode, mode, is_known);
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  return emu::get("cublasGetMathMode", handle, &cublasContext::math_mode, mode);
}

const char* cublasGetStatusName(cublasStatus_t status) { return cublasLtGetStatusName(status); }
const char* cublasGetStatusString(cublasStatus_t status) { return cublasLtGetStatusString(status); }

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                              int k, const float* alpha, const float* A, int lda, const float* B, int ldb,
                              const float* beta, float* C, int ldc) {
  return emu::with_handle(
      "cublasSgemm_v2", handle, [&](cublasContext& context, emu::Runtime& r, emu::Lock& lock) -> cublasStatus_t {
        return emu::gemm(context, r, lock, {transa, transb, m, n, k, alpha, A, lda, 0, B, ldb, 0, beta, C, ldc, 0, 1});
      });
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                         int m, int n, int k, const float* alpha, const float* A, int lda,
                                         long long strideA, const float* B, int ldb, long long strideB,
                                         const float* beta, float* C, int ldc, long long strideC, int batchCount) {
  return emu::with_handle("cublasSgemmStridedBatched", handle,
                          [&](cublasContext& context, emu::Runtime& r, emu::Lock& lock) -> cublasStatus_t {
                            return emu::gemm(context, r, lock,
                                             {transa, transb, m, n, k, alpha, A, lda, strideA, B, ldb, strideB, beta, C,
                                              ldc, strideC, batchCount});
                          });
}
