// What the cuBLASLt descriptors hold, beside the opaque structures of the header.
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

// Checks that the operands fit each other.
cublasStatus_t check_matmul(const BlasOperation& operation, const BlasLayout& a, const BlasLayout& b,
                            const BlasLayout& c, const BlasLayout& d);

}  // namespace emu
