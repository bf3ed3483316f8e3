// A multiplication of matrices as one kernel, and cublasLtMatmul: a triple loop whose sums run over k in ascending
// order.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "blas.h"

namespace emu {
namespace {

// Bounds are checked before; instrumented inner loops would be too slow to test with.
#define EMU_PLAIN __attribute__((no_sanitize("address", "thread", "undefined")))

// f(an element of that type).
template <class F>
auto with_type(cudaDataType type, const F& f) {
  switch (type) {
    case CUDA_R_64F:
      return f(double{});
    case CUDA_R_16F:
      return f(__half{});
    case CUDA_R_16BF:
      return f(__nv_bfloat16{});
    default:
      return f(float{});
  }
}
std::size_t bytes_of(cudaDataType type) {
  return with_type(type, []<class E>(E) { return sizeof(E); });
}
std::size_t element_bytes(const BlasLayout& layout) { return bytes_of(layout.type); }

template <class T>
EMU_PLAIN T read_as(T x) {
  return x;
}
template <class T>
EMU_PLAIN T read_as(__half x) {
  return static_cast<T>(__half2float(x));
}
template <class T>
EMU_PLAIN T read_as(__nv_bfloat16 x) {
  return static_cast<T>(__bfloat162float(x));
}
EMU_PLAIN void write_to(double& to, double x) { to = x; }
EMU_PLAIN void write_to(float& to, float x) { to = x; }
EMU_PLAIN void write_to(__half& to, float x) { to = __float2half(x); }
EMU_PLAIN void write_to(__nv_bfloat16& to, float x) { to = __float2bfloat16(x); }

std::int64_t row_stride(const BlasLayout& layout) { return layout.order == CUBLASLT_ORDER_ROW ? layout.ld : 1; }
std::int64_t col_stride(const BlasLayout& layout) { return layout.order == CUBLASLT_ORDER_ROW ? 1 : layout.ld; }

std::size_t footprint(const BlasLayout& layout) {
  const auto last = (static_cast<std::int64_t>(layout.rows) - 1) * row_stride(layout) +
                    (static_cast<std::int64_t>(layout.cols) - 1) * col_stride(layout) +
                    (layout.batches - 1) * layout.batch_stride;
  return static_cast<std::size_t>(last + 1) * element_bytes(layout);
}

bool is_layout(const BlasLayout& layout) {
  if (layout.rows == 0 || layout.cols == 0 || layout.batches < 1) return false;
  if (layout.order != CUBLASLT_ORDER_ROW && layout.order != CUBLASLT_ORDER_COL) return false;
  const std::uint64_t line = layout.order == CUBLASLT_ORDER_ROW ? layout.cols : layout.rows;
  return layout.ld >= static_cast<std::int64_t>(line) && layout.batch_stride >= 0;
}

// Products of f16 or bf16 are computed in f32; their result is of their type or f32.
bool types_fit(const BlasOperation& operation, const BlasLayout& a, const BlasLayout& b, const BlasLayout& c,
               const BlasLayout& d) {
  if (a.type != b.type || c.type != d.type) return false;
  if (operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32) return a.type == CUDA_R_32F && d.type == CUDA_R_32F;
  if (operation.scale == CUDA_R_64F) return a.type == CUDA_R_64F && d.type == CUDA_R_64F;
  const bool half = a.type == CUDA_R_16F || a.type == CUDA_R_16BF;
  return (half && d.type == a.type) || ((half || a.type == CUDA_R_32F) && d.type == CUDA_R_32F);
}

// op(matrix) as rows of contiguous elements.
template <class T, class E>
EMU_PLAIN void pack(const E* data, const BlasLayout& layout, bool transposed, std::vector<T>& out) {
  const std::uint64_t rows = transposed ? layout.cols : layout.rows, cols = transposed ? layout.rows : layout.cols;
  const std::int64_t by_row = transposed ? col_stride(layout) : row_stride(layout);
  const std::int64_t by_col = transposed ? row_stride(layout) : col_stride(layout);
  T* to = out.data();
  for (std::uint64_t i = 0; i < rows; ++i) {
    const E* from = data + static_cast<std::int64_t>(i) * by_row;
    for (std::uint64_t j = 0; j < cols; ++j) *to++ = read_as<T>(from[static_cast<std::int64_t>(j) * by_col]);
  }
}

// To the 10 bits of mantissa that TF32 keeps, half away from zero.
EMU_PLAIN void round_to_tf32(std::vector<float>& values) {
  for (float& value : values) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & ~0x1fffu;
    std::memcpy(&value, &bits, sizeof bits);
  }
}

// Adds the terms [first, end) of the sums over k.
template <class T>
EMU_PLAIN void multiply_row(const T* a, const T* b, T* sums, std::uint64_t first, std::uint64_t end, std::uint64_t n) {
  for (std::uint64_t p = first; p < end; ++p) {
    const T factor = a[p];
    const T* row = b + p * n;
    for (std::uint64_t j = 0; j < n; ++j) sums[j] += factor * row[j];
  }
}

template <class T>
void pack_batch(const void* data, const BlasLayout& layout, bool transposed, std::int32_t batch, std::vector<T>& out) {
  with_type(layout.type, [&]<class E>(E) {
    if constexpr (!std::is_same_v<E, double> || std::is_same_v<T, double>)
      pack(static_cast<const E*>(data) + batch * layout.batch_stride, layout, transposed, out);
  });
}

// One batch of D = alpha * a x b + beta * C, with a and b packed.
template <class T, class E>
void multiply_batch(const Matmul& m, const std::vector<T>& a, const std::vector<T>& b, T alpha, T beta, const E* c,
                    E* d) {
  const std::uint64_t k = a.size() / m.d.rows, n = m.d.cols;
  const auto parts = static_cast<std::uint64_t>(m.parts);
  std::vector<T> sums(n), part(n);
  for (std::uint64_t i = 0; i < m.d.rows; ++i) {
    std::fill(sums.begin(), sums.end(), T(0));
    for (std::uint64_t p = 0; p < parts; ++p) {
      std::fill(part.begin(), part.end(), T(0));
      multiply_row(a.data() + i * k, b.data(), part.data(), k * p / parts, k * (p + 1) / parts, n);
      for (std::uint64_t j = 0; j < n; ++j) sums[j] += part[j];
    }
    for (std::uint64_t j = 0; j < n; ++j) {
      const auto row = static_cast<std::int64_t>(i), col = static_cast<std::int64_t>(j);
      T value = alpha * sums[j];
      if (beta != T(0)) value += beta * read_as<T>(c[row * row_stride(m.c) + col * col_stride(m.c)]);
      write_to(d[row * row_stride(m.d) + col * col_stride(m.d)], value);
    }
  }
}

template <class T>
void multiply(const Matmul& m) {
  T alpha = static_cast<T>(m.host_alpha), beta = static_cast<T>(m.host_beta);
  if (m.alpha != nullptr) std::memcpy(&alpha, m.alpha, sizeof(T));
  if (m.beta != nullptr) std::memcpy(&beta, m.beta, sizeof(T));
  const bool ta = m.operation.transa != CUBLAS_OP_N, tb = m.operation.transb != CUBLAS_OP_N;
  std::vector<T> a(m.a.rows * m.a.cols), b(m.b.rows * m.b.cols);
  for (std::int32_t batch = 0; batch < m.d.batches; ++batch) {
    if (m.a_data != nullptr) pack_batch(m.a_data, m.a, ta, batch, a);
    if (m.b_data != nullptr) pack_batch(m.b_data, m.b, tb, batch, b);
    if constexpr (std::is_same_v<T, float>) {
      if (m.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
        round_to_tf32(a);
        round_to_tf32(b);
      }
    }
    with_type(m.d.type, [&]<class E>(E) {
      if constexpr (std::is_same_v<E, double> == std::is_same_v<T, double>) {
        const E* c = static_cast<const E*>(m.c_data) + (m.c_data == nullptr ? 0 : batch * m.c.batch_stride);
        multiply_batch(m, a, b, alpha, beta, c, static_cast<E*>(m.d_data) + batch * m.d.batch_stride);
      }
    });
  }
}

bool is_device(Memory& memory, const void* pointer, std::size_t bytes) {
  return memory.place(pointer) != Place::kPageable && memory.is_valid(pointer, bytes);
}

cudaError_t run_matmul(const Matmul& m) {
  if (!operands_live(runtime().memory, m)) return cudaErrorIllegalAddress;
  // Two launches that share a workspace without an order, or data in it, should show.
  if (m.workspace_bytes > 0) std::memset(m.workspace, 0xA5, m.workspace_bytes);
  if (m.operation.scale == CUDA_R_64F) {
    multiply<double>(m);
  } else {
    multiply<float>(m);
  }
  return cudaSuccess;
}

double read_scalar(const void* pointer, cudaDataType type) {
  if (type == CUDA_R_64F) return *static_cast<const double*>(pointer);
  return *static_cast<const float*>(pointer);
}

bool is_aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

bool fits_algorithm(Matmul& m, const cublasLtMatmulAlgo_t* algo, std::size_t workspace_bytes) {
  std::size_t alignment[4] = {element_bytes(m.a), element_bytes(m.b), element_bytes(m.c), element_bytes(m.d)};
  if (algo != nullptr) {
    BlasAlgorithm algorithm;
    std::memcpy(&algorithm, algo->data, sizeof algorithm);
    if (algorithm.magic != kBlasMagic || workspace_bytes < algorithm.workspace) return false;
    for (int i = 0; i < 4; ++i) alignment[i] = algorithm.alignment[i];
    m.parts = algorithm.parts;
  }
  const void* pointers[4] = {m.a_data, m.b_data, m.c_data, m.d_data};
  for (int i = 0; i < 4; ++i) {
    if (alignment[i] == 0 || !is_aligned(pointers[i], alignment[i])) return false;
  }
  return workspace_bytes == 0 || (m.workspace != nullptr && is_aligned(m.workspace, 256));
}

}  // namespace

void set_factors(Matmul& m, const void* alpha, const void* beta) {
  if (m.operation.pointer_mode == CUBLASLT_POINTER_MODE_HOST) {
    m.host_alpha = read_scalar(alpha, m.operation.scale);
    m.host_beta = read_scalar(beta, m.operation.scale);
    if (m.host_beta == 0) m.c_data = nullptr;
  } else {
    m.alpha = alpha;
    m.beta = beta;
  }
}

// In place is allowed with one layout only.
bool is_clear_target(const Matmul& m) {
  if (m.d_data == m.a_data || m.d_data == m.b_data) return false;
  return m.d_data != m.c_data || (m.c.order == m.d.order && m.c.ld == m.d.ld && m.c.batch_stride == m.d.batch_stride);
}

bool operands_live(Memory& memory, const Matmul& m) {
  if (m.a_data != nullptr && !is_device(memory, m.a_data, footprint(m.a))) return false;
  if (m.b_data != nullptr && !is_device(memory, m.b_data, footprint(m.b))) return false;
  if (!is_device(memory, m.d_data, footprint(m.d))) return false;
  if (m.c_data != nullptr && !is_device(memory, m.c_data, footprint(m.c))) return false;
  if (m.alpha != nullptr && !is_device(memory, m.alpha, bytes_of(m.operation.scale))) return false;
  if (m.beta != nullptr && !is_device(memory, m.beta, bytes_of(m.operation.scale))) return false;
  return m.workspace_bytes == 0 || is_device(memory, m.workspace, m.workspace_bytes);
}

cublasStatus_t issue_matmul(Runtime& r, Lock& lock, const Matmul& m, cudaStream_t stream) {
  KernelWork work;
  work.native = [m] { return run_matmul(m); };
  work.device = current_device();
  const void* used_workspace = m.workspace_bytes > 0 ? m.workspace : nullptr;
  for (const void* address : {m.a_data, m.b_data, m.c_data, static_cast<const void*>(m.d_data), used_workspace}) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&address);
    work.arguments.emplace_back(bytes, bytes + sizeof address);
  }
  const cudaError_t code = issue(r, lock, stream, std::move(work));
  return code == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t check_matmul(const BlasOperation& operation, const BlasLayout& a, const BlasLayout& b,
                            const BlasLayout& c, const BlasLayout& d) {
  for (const BlasLayout* layout : {&a, &b, &c, &d}) {
    if (!is_layout(*layout) || layout->batches != d.batches) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!types_fit(operation, a, b, c, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (operation.pointer_mode != CUBLASLT_POINTER_MODE_HOST && operation.pointer_mode != CUBLASLT_POINTER_MODE_DEVICE) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  for (const cublasOperation_t op : {operation.transa, operation.transb}) {
    if (op != CUBLAS_OP_N && op != CUBLAS_OP_T) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool ta = operation.transa != CUBLAS_OP_N, tb = operation.transb != CUBLAS_OP_N;
  const bool inner = (ta ? a.rows : a.cols) == (tb ? b.cols : b.rows);
  const bool outer = (ta ? a.cols : a.rows) == d.rows && (tb ? b.rows : b.cols) == d.cols;
  const bool same = c.rows == d.rows && c.cols == d.cols;
  return inner && outer && same ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace emu

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* A,
                              cublasLtMatrixLayout_t Adesc, const void* B, cublasLtMatrixLayout_t Bdesc,
                              const void* beta, const void* C, cublasLtMatrixLayout_t Cdesc, void* D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  return emu::blas("cublasLtMatmul", [&](emu::Runtime& r, emu::Lock& lock) {
    for (void* object : {static_cast<void*>(handle), static_cast<void*>(operation), static_cast<void*>(Adesc),
                         static_cast<void*>(Bdesc), static_cast<void*>(Cdesc), static_cast<void*>(Ddesc)}) {
      if (!r.blas_handles.contains(object)) return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    emu::Matmul m{emu::inside(operation),
                  emu::inside(Adesc),
                  emu::inside(Bdesc),
                  emu::inside(Cdesc),
                  emu::inside(Ddesc),
                  A,
                  B,
                  C,
                  D,
                  nullptr,
                  nullptr,
                  0,
                  0,
                  workspace,
                  workspace_bytes};
    const cublasStatus_t status = emu::check_matmul(m.operation, m.a, m.b, m.c, m.d);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    emu::set_factors(m, alpha, beta);
    const bool needs_c = m.alpha != nullptr || m.host_beta != 0;
    if (A == nullptr || B == nullptr || D == nullptr || (needs_c && C == nullptr)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!emu::fits_algorithm(m, algo, workspace_bytes)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!emu::is_clear_target(m)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!emu::operands_live(r.memory, m)) return CUBLAS_STATUS_INVALID_VALUE;
    return emu::issue_matmul(r, lock, m, stream);
  });
}
