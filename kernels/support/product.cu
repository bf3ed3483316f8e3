// Products of batches of matrices: cuBLASLt on the GPU; on the CPU BLAS, one thread for each call.
#include "kernels/support/product.h"

#include <limits>

#include "kernels/support/blas.h"
#include "kernels/support/copy.h"
#include "kernels/support/dtype.h"
#ifdef GRAPHSINK_CUDA
#include "device/cuda/blas_lt.h"
#endif

namespace graphsink {
namespace {

bool is_empty(const MatrixProduct& p) { return p.m == 0 || p.n == 0 || p.batches.size == 0; }

std::size_t bytes_of_result(const MatrixProduct& p) {
  return static_cast<std::size_t>(p.batches.size * p.m * p.n) * size_of(p.out_dtype());
}

template <class T>
BlasMatrix<T> lhs_of(const MatrixProduct& p, const T* data) {
  return {data, static_cast<int>(p.transpose_a ? p.m : p.k), p.transpose_a};
}
template <class T>
BlasMatrix<T> rhs_of(const MatrixProduct& p, const T* data) {
  return {data, static_cast<int>(p.transpose_b ? p.k : p.n), p.transpose_b};
}

// A tile takes about this many multiplications at least. BLAS copies the operands into its own order in each call: all
// of one operand, whatever part of the other the tile has. So a tile has at least kTileLines rows or columns of a
// matrix, and at least kFewTileLines where four tiles or fewer are made of it. (512 x 512 x 128 on a Xeon: 4 % slower
// with tiles of 128 rows, 10 % with 64, 40 % with 16.)
constexpr std::int64_t kTileProducts = 1 << 20;
constexpr std::int64_t kTileLines = 128, kFewTileLines = 64;
constexpr std::int64_t kMostTiles = 16;  // tiles of one matrix

// How many rows or columns of a matrix, whichever there are more of, or how many matrices of a batch are a tile. The
// number of tiles of a matrix is a power of two, so that two or four threads have equal shares.
std::int64_t lines_of_tile(const MatrixProduct& p) {
  const std::int64_t of_matrix = std::max<std::int64_t>(1, p.m * p.n * std::max<std::int64_t>(p.k, 1));
  if (p.batches.size > 1) return std::max<std::int64_t>(1, kTileProducts / of_matrix);
  const std::int64_t lines = std::max(p.m, p.n);
  const std::int64_t most = std::max(std::min<std::int64_t>(4, lines / kFewTileLines), lines / kTileLines);
  const std::int64_t tiles = std::max<std::int64_t>(1, std::min({of_matrix / kTileProducts, most, kMostTiles}));
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(tiles)));
  return (lines + power - 1) / power;
}

template <class T>
void run_tile(const MatrixProduct& p, const ProductTile& tile, const void* lhs, const void* rhs, void* out, bool adds) {
  const auto m = static_cast<int>(tile.end_row - tile.first_row);
  const auto n = static_cast<int>(tile.end_column - tile.first_column), k = static_cast<int>(p.k);
  for (std::int64_t i = tile.first_batch; i < tile.end_batch; ++i) {
    std::int64_t at[3];
    p.batches.find(i, at);
    const T* a = static_cast<const T*>(lhs) + at[0] + tile.first_row * (p.transpose_a ? 1 : p.k);
    const T* b = static_cast<const T*>(rhs) + at[1] + tile.first_column * (p.transpose_b ? p.k : 1);
    multiply(m, n, k, T{1}, lhs_of(p, a), rhs_of(p, b), T{adds ? 1.0f : 0.0f},
             static_cast<T*>(out) + at[2] + tile.first_row * p.n + tile.first_column, static_cast<int>(p.n));
  }
}

// Rows of the result of 16-bit operands that are computed at once.
std::int64_t rows_at_once(const MatrixProduct& p) { return std::min<std::int64_t>(p.m, 128); }

// In floats: a matrix of rhs, rows of lhs, rows of the result.
std::size_t halves_workspace(const MatrixProduct& p) {
  return static_cast<std::size_t>(p.k * p.n + rows_at_once(p) * (p.k + p.n)) * sizeof(float);
}

// As for f32, some rows at a time, between conversions.
template <class T, class Out>
void run_halves(const MatrixProduct& p, const T* lhs, const T* rhs, Out* out, float* workspace) {
  float *wide_rhs = workspace, *wide_lhs = wide_rhs + p.k * p.n, *wide_out = wide_lhs + rows_at_once(p) * p.k;
  auto n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  std::int64_t converted = -1;  // the matrix of rhs in the workspace: many batches may share one
  for (std::int64_t i = 0; i < p.batches.size; ++i) {
    std::int64_t at[3];
    p.batches.find(i, at);
    if (at[1] != converted) std::copy_n(rhs + at[1], p.k * p.n, wide_rhs);
    converted = at[1];
    for (std::int64_t first = 0; first < p.m; first += rows_at_once(p)) {
      std::int64_t rows = std::min(rows_at_once(p), p.m - first);
      if (p.transpose_a) {
        for (std::int64_t row = 0; row < p.k; ++row)
          std::copy_n(lhs + at[0] + row * p.m + first, rows, wide_lhs + row * rows);
      } else {
        std::copy_n(lhs + at[0] + first * p.k, rows * p.k, wide_lhs);
      }
      BlasMatrix<float> a{wide_lhs, static_cast<int>(p.transpose_a ? rows : p.k), p.transpose_a};
      multiply(static_cast<int>(rows), n, k, 1.0f, a, rhs_of<float>(p, wide_rhs), 0.0f, wide_out, n);
      std::transform(wide_out, wide_out + rows * p.n, out + at[2] + first * p.n,
                     [](float x) { return static_cast<Out>(x); });
    }
  }
}

#ifdef GRAPHSINK_CUDA
// The innermost dimension of the batch is one call; the others are a loop around it.
MatmulSpec spec_of(const MatrixProduct& p) {
  MatmulSpec spec{p.dtype, p.m, p.n, p.k, p.transpose_a, p.transpose_b};
  spec.tf32 = p.tf32;
  spec.f32_out = p.f32_out;
  spec.alignment = static_cast<std::size_t>(p.alignment);
  const Layout<3>& batches = p.batches;
  if (batches.rank > 0) {
    spec.batches = batches.row();
    for (int operand = 0; operand < 3; ++operand)
      spec.batch_strides[static_cast<std::size_t>(operand)] = batches.strides[operand][batches.rank - 1];
  }
  for (int d = 0; d + 1 < batches.rank; ++d) {
    for (int operand = 0; operand < 3; ++operand) {
      std::size_t element = size_of(operand == 2 ? p.out_dtype() : p.dtype);
      std::size_t step = static_cast<std::size_t>(batches.strides[operand][d]) * element;
      while (step % spec.alignment != 0) spec.alignment /= 2;
    }
  }
  return spec;
}
#endif

}  // namespace

PreparedProduct prepare_product(const PrepareArgs& p, const MatrixProduct& product) {
  if (std::max({product.m, product.n, product.k, product.batches.row()}) > std::numeric_limits<int>::max()) {
    throw Error(std::string(p.op), p.where, "a dimension above 2^31 - 1, the limit of BLAS", "split the operand");
  }
#ifdef GRAPHSINK_CUDA
  if (p.cuda) {
    load_kernel(p, fill_zeros<std::uint8_t>);
    if (is_empty(product) || product.k == 0) return {product, nullptr, 0};
    Prepared prepared = prepare_matmul(spec_of(product), p);
    return {product, prepared.data, prepared.workspace};
  }
#endif
  use_one_blas_thread();
  bool converts = is_half(product.dtype) && !is_empty(product);
  return {product, nullptr, converts ? halves_workspace(product) : 0};
}

std::int64_t count_product_tiles(const MatrixProduct& p) {
  if (is_empty(p) || p.k == 0 || is_half(p.dtype)) return 1;
  const std::int64_t lines = p.batches.size > 1 ? p.batches.size : std::max(p.m, p.n);
  return (lines + lines_of_tile(p) - 1) / lines_of_tile(p);
}

ProductTile product_tile(const MatrixProduct& p, std::int64_t tile) {
  ProductTile t{0, p.batches.size, 0, p.m, 0, p.n};
  if (count_product_tiles(p) == 1) return t;
  std::int64_t& first = p.batches.size > 1 ? t.first_batch : p.m >= p.n ? t.first_row : t.first_column;
  std::int64_t& end = p.batches.size > 1 ? t.end_batch : p.m >= p.n ? t.end_row : t.end_column;
  first = tile * lines_of_tile(p);
  end = std::min(end, first + lines_of_tile(p));
  return t;
}

void run_product_tile(const PreparedProduct& prepared, const ProductTile& tile, const void* lhs, const void* rhs,
                      void* out, void* workspace, bool adds) {
  const MatrixProduct& p = prepared.product;
  if (is_empty(p)) return;
  if (p.k == 0) {  // one tile
    if (!adds) std::fill_n(static_cast<std::byte*>(out), bytes_of_result(p), std::byte{0});
    return;
  }
  for_dtype<float, double, half, bfloat16>(p.dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, Wide<T>>) {
      run_tile<T>(p, tile, lhs, rhs, out, adds);
    } else {
      for_dtype<T, float>(p.out_dtype(), [&]<class Out>() {
        run_halves(p, static_cast<const T*>(lhs), static_cast<const T*>(rhs), static_cast<Out*>(out),
                   static_cast<float*>(workspace));
      });
    }
  });
}

void run_product(const CpuArgs&, const PreparedProduct& prepared, const void* lhs, const void* rhs, void* out,
                 void* workspace, bool adds) {
  for (std::int64_t tile = 0; tile < count_product_tiles(prepared.product); ++tile)
    run_product_tile(prepared, product_tile(prepared.product, tile), lhs, rhs, out, workspace, adds);
}

void run_product([[maybe_unused]] CudaArgs& a, [[maybe_unused]] const PreparedProduct& prepared,
                 [[maybe_unused]] const void* lhs, [[maybe_unused]] const void* rhs, [[maybe_unused]] void* out,
                 [[maybe_unused]] void* workspace) {
#ifdef GRAPHSINK_CUDA
  const MatrixProduct& p = prepared.product;
  if (is_empty(p)) return;
  if (p.k == 0) {
    auto bytes = static_cast<std::int64_t>(bytes_of_result(p));
    return a.launch(fill_zeros<std::uint8_t>, launch_size(bytes), static_cast<std::uint8_t*>(out), bytes);
  }
  auto element = static_cast<std::int64_t>(size_of(p.dtype));
  auto out_element = static_cast<std::int64_t>(size_of(p.out_dtype()));
  std::int64_t row = p.batches.rank == 0 ? 1 : p.batches.row();
  for (std::int64_t i = 0; i < p.batches.size; i += row) {
    std::int64_t at[3];
    p.batches.find(i, at);
    run_matmul(a, prepared.plan.get(), static_cast<const std::byte*>(lhs) + at[0] * element,
               static_cast<const std::byte*>(rhs) + at[1] * element, static_cast<std::byte*>(out) + at[2] * out_element,
               workspace);
  }
#endif
}

}  // namespace graphsink
