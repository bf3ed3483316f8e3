// Products of batches of matrices: cuBLASLt on the GPU; on the CPU BLAS, one thread for each call.
#include "kernels/product.h"

#include <cblas.h>

#include <limits>
#ifdef GRAPHSINK_CUDA
#include "device/cuda/blas_lt.h"
#endif

namespace graphsink {
namespace {

bool is_empty(const Product& p) { return p.m == 0 || p.n == 0 || p.batches.size == 0; }

std::size_t bytes_of_result(const Product& p) {
  return static_cast<std::size_t>(p.batches.size * p.m * p.n) * size_of(p.dtype);
}

void gemm(const Product& p, const float* lhs, const float* rhs, float* out, bool adds) {
  auto m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans, p.transpose_b ? CblasTrans : CblasNoTrans, m, n,
              k, 1.0f, lhs, p.transpose_a ? m : k, rhs, p.transpose_b ? k : n, adds ? 1.0f : 0.0f, out, n);
}
void gemm(const Product& p, const double* lhs, const double* rhs, double* out, bool adds) {
  auto m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  cblas_dgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans, p.transpose_b ? CblasTrans : CblasNoTrans, m, n,
              k, 1.0, lhs, p.transpose_a ? m : k, rhs, p.transpose_b ? k : n, adds ? 1.0 : 0.0, out, n);
}

template <class T>
void run_batches(const Product& p, const void* lhs, const void* rhs, void* out, bool adds) {
  for (std::int64_t i = 0; i < p.batches.size; ++i) {
    std::int64_t at[3];
    p.batches.find(i, at);
    gemm(p, static_cast<const T*>(lhs) + at[0], static_cast<const T*>(rhs) + at[1], static_cast<T*>(out) + at[2], adds);
  }
}

#ifdef GRAPHSINK_CUDA
__global__ void fill_zeros(std::uint8_t* out, std::int64_t bytes) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < bytes; i += all_threads()) out[i] = 0;
}

// The innermost dimension of the batch is one call; the others are a loop around it.
MatmulSpec spec_of(const Product& p) {
  MatmulSpec spec{p.dtype, p.m, p.n, p.k, p.transpose_a, p.transpose_b};
  spec.tf32 = p.tf32;
  spec.alignment = static_cast<std::size_t>(p.alignment);
  const Layout<3>& batches = p.batches;
  if (batches.rank > 0) {
    spec.batches = batches.row();
    for (int operand = 0; operand < 3; ++operand)
      spec.batch_strides[static_cast<std::size_t>(operand)] = batches.strides[operand][batches.rank - 1];
  }
  for (int d = 0; d + 1 < batches.rank; ++d) {
    for (const auto& strides : batches.strides) {
      auto step = static_cast<std::size_t>(strides[d]) * size_of(p.dtype);
      while (step % spec.alignment != 0) spec.alignment /= 2;
    }
  }
  return spec;
}
#endif

}  // namespace

PreparedProduct prepare_product(const PrepareArgs& p, const Product& product) {
  if (std::max({product.m, product.n, product.k, product.batches.row()}) > std::numeric_limits<int>::max()) {
    throw Error(std::string(p.op), p.where, "a dimension above 2^31 - 1, the limit of BLAS", "split the operand");
  }
#ifdef GRAPHSINK_CUDA
  if (p.cuda) {
    load_kernel(p, fill_zeros);
    if (is_empty(product) || product.k == 0) return {product, nullptr, 0};
    Prepared prepared = prepare_matmul(spec_of(product), p);
    return {product, prepared.data, prepared.workspace};
  }
#endif
#ifdef OPENBLAS_SEQUENTIAL
  // For the whole process: how a product is split among threads, of which each machine has its own number, shows in
  // bits.
  if (openblas_get_num_threads() > 1) openblas_set_num_threads(1);
#endif
  return {product, nullptr, 0};
}

void run_product(const CpuArgs&, const PreparedProduct& prepared, const void* lhs, const void* rhs, void* out, void*,
                 bool adds) {
  const Product& p = prepared.product;
  if (is_empty(p)) return;
  if (p.k == 0) {
    if (!adds) std::fill_n(static_cast<std::byte*>(out), bytes_of_result(p), std::byte{0});
    return;
  }
  p.dtype == DType::f32 ? run_batches<float>(p, lhs, rhs, out, adds) : run_batches<double>(p, lhs, rhs, out, adds);
}

void run_product([[maybe_unused]] CudaArgs& a, [[maybe_unused]] const PreparedProduct& prepared,
                 [[maybe_unused]] const void* lhs, [[maybe_unused]] const void* rhs, [[maybe_unused]] void* out,
                 [[maybe_unused]] void* workspace) {
#ifdef GRAPHSINK_CUDA
  const Product& p = prepared.product;
  if (is_empty(p)) return;
  if (p.k == 0) {
    auto bytes = static_cast<std::int64_t>(bytes_of_result(p));
    LaunchSize launch = launch_size(bytes);
    return a.launch(fill_zeros, launch.grid, launch.block, 0, static_cast<std::uint8_t*>(out), bytes);
  }
  auto element = static_cast<std::int64_t>(size_of(p.dtype));
  std::int64_t row = p.batches.rank == 0 ? 1 : p.batches.row();
  for (std::int64_t i = 0; i < p.batches.size; i += row) {
    std::int64_t at[3];
    p.batches.find(i, at);
    run_matmul(a, prepared.plan.get(), static_cast<const std::byte*>(lhs) + at[0] * element,
               static_cast<const std::byte*>(rhs) + at[1] * element, static_cast<std::byte*>(out) + at[2] * element,
               workspace);
  }
#endif
}

}  // namespace graphsink
