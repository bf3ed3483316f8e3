#include <cstring>

#include "blas.h"

namespace emu {
namespace {

template <class T>
cublasStatus_t read(T& field, const void* buffer, std::size_t bytes) {
  if (buffer == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, buffer, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set_operation(BlasOperation& operation, cublasLtMatmulDescAttributes_t attribute, const void* buffer,
                             std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return read(operation.transa, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return read(operation.transb, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return read(operation.pointer_mode, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: {
      cublasLtEpilogue_t epilogue;
      const cublasStatus_t status = read(epilogue, buffer, bytes);
      if (status != CUBLAS_STATUS_SUCCESS) return status;
      return epilogue == CUBLASLT_EPILOGUE_DEFAULT ? status : CUBLAS_STATUS_NOT_SUPPORTED;
    }
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t set_layout(BlasLayout& layout, cublasLtMatrixLayoutAttribute_t attribute, const void* buffer,
                          std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return read(layout.order, buffer, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return read(layout.rows, buffer, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return read(layout.cols, buffer, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return read(layout.ld, buffer, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return read(layout.batches, buffer, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return read(layout.batch_stride, buffer, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t set_preference(BlasPreference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
                              const void* buffer, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return read(preference.workspace, buffer, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return read(preference.alignment[0], buffer, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return read(preference.alignment[1], buffer, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return read(preference.alignment[2], buffer, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return read(preference.alignment[3], buffer, bytes);
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return CUBLAS_STATUS_SUCCESS;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

}  // namespace
}  // namespace emu

using emu::blas;
using emu::Lock;
using emu::Runtime;

struct cublasLtContext {
  int unused = 0;
};

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return emu::create_blas<cublasLtContext>("cublasLtCreate", handle,
                                           [](cublasLtContext&) { return CUBLAS_STATUS_SUCCESS; });
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return emu::destroy_blas<cublasLtContext>("cublasLtDestroy", handle);
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_UNKNOWN";
  }
}

const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute, cudaDataType_t scale) {
  return emu::create_blas<emu::BlasOperationObject>(
      "cublasLtMatmulDescCreate", out, [&](emu::BlasOperationObject& object) {
        object.inner = {compute, scale, CUBLASLT_POINTER_MODE_HOST, CUBLAS_OP_N, CUBLAS_OP_N};
        const bool single = compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                            compute == CUBLAS_COMPUTE_32F_FAST_TF32;
        const bool twice = compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC;
        const bool fits = (single && scale == CUDA_R_32F) || (twice && scale == CUDA_R_64F);
        return fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
      });
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t object) {
  return emu::destroy_blas<emu::BlasOperationObject>("cublasLtMatmulDescDestroy", object);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t object, cublasLtMatmulDescAttributes_t attribute,
                                              const void* buffer, size_t bytes) {
  return blas("cublasLtMatmulDescSetAttribute", [&](Runtime& r, Lock&) {
    if (!r.blas_handles.contains(object)) return CUBLAS_STATUS_INVALID_VALUE;
    return emu::set_operation(emu::inside(object), attribute, buffer, bytes);
  });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
  return emu::create_blas<emu::BlasLayoutObject>("cublasLtMatrixLayoutCreate", out, [&](emu::BlasLayoutObject& object) {
    object.inner = {type, CUBLASLT_ORDER_COL, rows, cols, ld, 1, 0};
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t object) {
  return emu::destroy_blas<emu::BlasLayoutObject>("cublasLtMatrixLayoutDestroy", object);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t object,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* buffer,
                                                size_t bytes) {
  return blas("cublasLtMatrixLayoutSetAttribute", [&](Runtime& r, Lock&) {
    if (!r.blas_handles.contains(object)) return CUBLAS_STATUS_INVALID_VALUE;
    return emu::set_layout(emu::inside(object), attribute, buffer, bytes);
  });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  return emu::create_blas<emu::BlasPreferenceObject>("cublasLtMatmulPreferenceCreate", out,
                                                     [](emu::BlasPreferenceObject& object) {
                                                       object.inner = {0, {256, 256, 256, 256}};
                                                       return CUBLAS_STATUS_SUCCESS;
                                                     });
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t object) {
  return emu::destroy_blas<emu::BlasPreferenceObject>("cublasLtMatmulPreferenceDestroy", object);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t object,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* buffer,
                                                    size_t bytes) {
  return blas("cublasLtMatmulPreferenceSetAttribute", [&](Runtime& r, Lock&) {
    if (!r.blas_handles.contains(object)) return CUBLAS_STATUS_INVALID_VALUE;
    return emu::set_preference(emu::inside(object), attribute, buffer, bytes);
  });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  return blas("cublasLtMatmulAlgoGetHeuristic", [&](Runtime& r, Lock&) {
    for (void* object :
         {static_cast<void*>(handle), static_cast<void*>(operation), static_cast<void*>(a), static_cast<void*>(b),
          static_cast<void*>(c), static_cast<void*>(d), static_cast<void*>(preference)}) {
      if (!r.blas_handles.contains(object)) return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (results == nullptr || found == nullptr || requested <= 0) return CUBLAS_STATUS_INVALID_VALUE;
    *found = 0;
    const cublasStatus_t status =
        emu::check_matmul(emu::inside(operation), emu::inside(a), emu::inside(b), emu::inside(c), emu::inside(d));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const emu::BlasPreference& wishes = emu::inside(preference);
    auto add = [&](std::int32_t parts) {
      if (*found == requested) return;
      cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
      result = cublasLtMatmulHeuristicResult_t{};
      // Takes some workspace when it may, so that a program that forgets to give it is found out.
      result.workspaceSize = wishes.workspace >= 1024 ? 1024 : 0;
      result.state = CUBLAS_STATUS_SUCCESS;
      result.wavesCount = 1.0f;
      emu::BlasAlgorithm algorithm{emu::kBlasMagic, result.workspaceSize, {}, parts};
      std::memcpy(algorithm.alignment, wishes.alignment, sizeof algorithm.alignment);
      std::memcpy(result.algo.data, &algorithm, sizeof algorithm);
    };
    // For small products the real heuristic may put an algorithm of many parts first.
    const emu::BlasLayout &left = emu::inside(a), &out = emu::inside(d);
    const std::uint64_t k = left.rows * left.cols / out.rows;
    if (out.rows * out.cols <= 4096 && k >= 64) add(static_cast<std::int32_t>(k / 8));
    add(1);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* buffer,
                                                    size_t bytes, size_t* written) {
  return blas("cublasLtMatmulAlgoConfigGetAttribute", [&](Runtime&, Lock&) {
    if (algo == nullptr || buffer == nullptr || written == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    emu::BlasAlgorithm algorithm;
    std::memcpy(&algorithm, algo->data, sizeof algorithm);
    if (algorithm.magic != emu::kBlasMagic || attribute != CUBLASLT_ALGO_CONFIG_SPLITK_NUM ||
        bytes < sizeof algorithm.parts)
      return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(buffer, &algorithm.parts, sizeof algorithm.parts);
    *written = sizeof algorithm.parts;
    return CUBLAS_STATUS_SUCCESS;
  });
}
