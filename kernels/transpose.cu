// transpose: swaps the last two axes, a copy.
#include "graphsink/ops.h"
#include "kernels/kernel.h"

namespace graphsink {
namespace {

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // rows of a tile that a block handles at once

// A tile passes through shared memory, so that both sides are read and written along rows. The extra column keeps the
// threads of a warp in different banks.
template <class T>
__global__ void transpose_tiles(const T* x, T* out, std::int64_t rows, std::int64_t columns, std::int64_t tiles_across,
                                std::int64_t tiles_down) {
  wait_for_inputs();
  __shared__ T tile[kTile][kTile + 1];
  std::int64_t across = blockIdx.x % tiles_across, down = blockIdx.x / tiles_across % tiles_down;
  std::int64_t matrix = blockIdx.x / tiles_across / tiles_down * rows * columns;
  std::int64_t column = across * kTile + threadIdx.x;
  for (unsigned j = threadIdx.y; j < kTile; j += kTileRows) {
    std::int64_t row = down * kTile + j;
    if (row < rows && column < columns) tile[j][threadIdx.x] = x[matrix + row * columns + column];
  }
  __syncthreads();
  std::int64_t row = down * kTile + threadIdx.x;
  for (unsigned j = threadIdx.y; j < kTile; j += kTileRows) {
    column = across * kTile + j;
    if (row < rows && column < columns) out[matrix + column * rows + row] = tile[threadIdx.x][j];
  }
}

template <class T>
void transpose_on(CudaArgs& a) {
  const Shape& shape = a.in_type(0).shape;
  std::int64_t rows = shape[-2], columns = shape[-1];
  if (shape.size() == 0) return;
  std::int64_t across = (columns + kTile - 1) / kTile, down = (rows + kTile - 1) / kTile;
  std::int64_t blocks = across * down * (shape.size() / (rows * columns));
  a.launch(transpose_tiles<T>, Extent{static_cast<unsigned>(blocks)}, Extent{kTile, kTileRows}, 0, a.in<T>(0),
           a.out<T>(0), rows, columns, across, down);
}

template <class T>
void transpose_on(const CpuArgs& a) {
  const Shape& shape = a.in_type(0).shape;
  std::int64_t rows = shape[-2], columns = shape[-1];
  const T* x = a.in<T>(0);
  T* out = a.out<T>(0);
  for (std::int64_t left = shape.size(); left > 0; left -= rows * columns, x += rows * columns, out += rows * columns) {
    for (std::int64_t r0 = 0; r0 < rows; r0 += kTile)
      for (std::int64_t c0 = 0; c0 < columns; c0 += kTile)
        for (std::int64_t c = c0; c < std::min(c0 + kTile, columns); ++c)
          for (std::int64_t r = r0; r < std::min(r0 + kTile, rows); ++r) out[c * rows + r] = x[r * columns + c];
  }
}

// Only the size of an element matters.
template <class Args>
void transpose_any(Args& a) {
  switch (size_of(a.in_type(0).dtype)) {
    case 1:
      return transpose_on<std::uint8_t>(a);
    case 4:
      return transpose_on<std::uint32_t>(a);
    default:
      return transpose_on<std::uint64_t>(a);
  }
}

void infer_transpose(InferArgs& a) {
  a.expect_inputs(1);
  Shape shape = a.in(0).shape;
  if (shape.rank() < 2) a.fail("needs two axes", "reshape() the operand first");
  std::swap(shape[-1], shape[-2]);
  a.out(a.in(0).dtype, shape);
}

std::vector<Value> transpose_grad(const GradArgs& a) { return {transpose(Arg(a.grads[0], a.where))}; }

constexpr CudaBody kCuda[] = {{0, transpose_any<CudaArgs>}};
const OpDef transpose_op{
    .name = "transpose",
    .infer = infer_transpose,
    .prepare =
        load_kernels<transpose_tiles<std::uint8_t>, transpose_tiles<std::uint32_t>, transpose_tiles<std::uint64_t>>,
    .cuda = kCuda,
    .cpu = transpose_any<const CpuArgs>,
    .grad = transpose_grad};

}  // namespace

Value transpose(Arg x, Label label) { return emit(transpose_op, {x}, {}, label)[0]; }

}  // namespace graphsink
