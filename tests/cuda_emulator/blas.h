// What the cuBLASLt descriptors hold, beside the opaque structures of the header, and what cuBLAS shares with cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <cstdint>

#include "runtime.h"

namespace emu {

struct BlasLayout {
  cudaDataType type;
  cublasLtOrder_t order;
  std::uint64_t rows;
  std::uint64_t cols;
  std::int64_t ld;
  std::int32_t batches;
  std::int64_t batch_stride;
};

struct BlasOperation {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasLtPointerMode_t pointer_mode;
  cublasOperation_t transa;
  cublasOperation_t transb;
};

struct BlasPreference {
  std::uint64_t workspace;
  std::uint32_t alignment[4];  // A, B, C, D
};

// What an algorithm was chosen for: an operand with less alignment does not fit it.
struct BlasAlgorithm {
  std::uint64_t magic;
  std::uint64_t workspace;
  std::uint32_t alignment[4];
  std::int32_t parts;  // into which the sum over k is divided; each is rounded
};

inline constexpr std::uint64_t kBlasMagic = 0x67656d6d656d7531u;

template <class Opaque, class Inner>
struct BlasObject : Opaque {
  Inner inner{};
};
using BlasLayoutObject = BlasObject<cublasLtMatrixLayoutOpaque_t, BlasLayout>;
using BlasOperationObject = BlasObject<cublasLtMatmulDescOpaque_t, BlasOperation>;
using BlasPreferenceObject = BlasObject<cublasLtMatmulPreferenceOpaque_t, BlasPreference>;

inline BlasLayout& inside(cublasLtMatrixLayout_t object) { return static_cast<BlasLayoutObject*>(object)->inner; }
inline BlasOperation& inside(cublasLtMatmulDesc_t object) { return static_cast<BlasOperationObject*>(object)->inner; }
inline BlasPreference& inside(cublasLtMatmulPreference_t object) {
  return static_cast<BlasPreferenceObject*>(object)->inner;
}

// As api() for cuBLASLt: same counters and faults, no last error.
template <class F>
cublasStatus_t blas(const char* name, F&& body) {
  const InCall in_call;
  Runtime& r = runtime();
  Lock lock(r.mutex);
  const cudaError_t refused = enter_call(r, name, When::kHealthy);
  cublasStatus_t status;
  if (refused == cudaSuccess) {
    status = body(r, lock);
  } else if (r.executor.sticky() != cudaSuccess || refused == cudaErrorNotPermitted) {
    status = CUBLAS_STATUS_EXECUTION_FAILED;
  } else {
    status = static_cast<cublasStatus_t>(refused);
  }
  leave_untracked(r, name, status);
  return status;
}

template <class T>
cublasStatus_t create_blas(const char* name, auto** out, const auto& fill) {
  return blas(name, [&](Runtime& r, Lock&) {
    if (out == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    auto* object = new T{};
    const cublasStatus_t status = fill(*object);
    if (status != CUBLAS_STATUS_SUCCESS) {
      delete object;
      return status;
    }
    *out = object;
    r.blas_handles.insert(*out);
    return CUBLAS_STATUS_SUCCESS;
  });
}

// Handles and descriptors are host memory: they can be released after the device has failed.
template <class T>
cublasStatus_t destroy_blas(const char* name, auto* object, cublasStatus_t unknown = CUBLAS_STATUS_INVALID_VALUE) {
  const InCall in_call;
  Runtime& r = runtime();
  Lock lock(r.mutex);
  const cudaError_t refused = enter_call(r, name, When::kAlways);
  cublasStatus_t status = static_cast<cublasStatus_t>(refused);
  if (refused == cudaSuccess) {
    const bool known = r.blas_handles.erase(object) == 1;
    if (known) delete static_cast<T*>(object);
    status = known ? CUBLAS_STATUS_SUCCESS : unknown;
  }
  leave_untracked(r, name, status);
  return status;
}

// D = alpha * op(A) x op(B) + beta * C, for each batch.
struct Matmul {
  BlasOperation operation;
  BlasLayout a, b, c, d;
  const void* a_data;  // null, as b_data, where the products have no terms: then D = beta * C
  const void* b_data;
  const void* c_data;
  void* d_data;
  const void* alpha;  // device pointer mode only
  const void* beta;
  double host_alpha;  // both types fit
  double host_beta;
  void* workspace;
  std::size_t workspace_bytes;
  std::int32_t parts = 1;  // see BlasAlgorithm
};

// Checks that the operands fit each other.
cublasStatus_t check_matmul(const BlasOperation& operation, const BlasLayout& a, const BlasLayout& b,
                            const BlasLayout& c, const BlasLayout& d);

// Reads the factors of `m` in host pointer mode, or keeps their addresses.
void set_factors(Matmul& m, const void* alpha, const void* beta);
// Whether D is neither A nor B, nor C with another layout.
bool is_clear_target(const Matmul& m);
// Whether all of the operands is live memory that the device can use.
bool operands_live(Memory& memory, const Matmul& m);
// Puts the multiplication on the stream, after all checks.
cublasStatus_t issue_matmul(Runtime& runtime, Lock& lock, const Matmul& m, cudaStream_t stream);

}  // namespace emu
