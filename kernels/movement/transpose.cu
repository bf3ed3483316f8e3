// permute, transpose: copies with the axes in another order.
#include <limits>

#include "base/at.h"
#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/support/strided_copy.h"

namespace graphsink {
namespace {

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // rows of a tile that a block handles at once

// Matrices that are transposed: row r, column c of one is element r * pitch + c of the operand and element
// c * out_pitch + r of the result, counted from where the matrix begins in each.
struct Matrices {
  std::int64_t rows = 1, columns = 1, pitch = 0, out_pitch = 0;
  Layout<2> begins;
};

// A tile passes through shared memory, so that both sides are read and written along rows. The extra column keeps the
// threads of a warp in different banks.
template <class T>
__global__ void transpose_tiles(const T* x, T* out, Matrices m, std::int64_t tiles_across, std::int64_t tiles_down) {
  wait_for_inputs();
  __shared__ T tile[kTile][kTile + 1];
  std::int64_t across = blockIdx.x % tiles_across, down = blockIdx.x / tiles_across % tiles_down;
  std::int64_t begins[2];
  m.begins.find(blockIdx.x / tiles_across / tiles_down, begins);
  std::int64_t column = across * kTile + threadIdx.x;
  for (unsigned j = threadIdx.y; j < kTile; j += kTileRows) {
    std::int64_t row = down * kTile + j;
    if (row < m.rows && column < m.columns) tile[j][threadIdx.x] = x[begins[0] + row * m.pitch + column];
  }
  __syncthreads();
  std::int64_t row = down * kTile + threadIdx.x;
  for (unsigned j = threadIdx.y; j < kTile; j += kTileRows) {
    column = across * kTile + j;
    if (row < m.rows && column < m.columns) out[begins[1] + column * m.out_pitch + row] = tile[threadIdx.x][j];
  }
}

struct PermutePlan {
  bool is_tiled = false;  // else neighbours stay neighbours
  StridedCopy copy;
  Matrices matrices;
  int element = 1;  // bytes
};

// The matrices are spanned by the axis whose elements are neighbours in the operand and the one in the result.
Matrices matrices_of(const Layout<1>& source) {
  int down = source.rank - 1, across = 0;
  while (source.strides[0][across] != 1) ++across;
  Matrices m;
  m.rows = source.dims[down];
  m.columns = source.dims[across];
  m.pitch = source.strides[0][down];
  std::int64_t out_strides[Shape::kMaxRank] = {};
  dense_strides(Shape(std::span(source.dims, static_cast<std::size_t>(source.rank))), out_strides);
  m.out_pitch = out_strides[across];
  m.begins.size = source.size / (m.rows * m.columns);
  for (int d = 0; d < down; ++d)
    if (d != across) append(m.begins, source.dims[d], {source.strides[0][d], out_strides[d]});
  return m;
}

// Tiles of a matrix across and down.
struct Tiles {
  std::int64_t across = 0, down = 0;
};
Tiles tiles_of(const Matrices& m) { return {(m.columns + kTile - 1) / kTile, (m.rows + kTile - 1) / kTile}; }

// Whether a block for each tile is no more than a launch may have.
bool can_be_tiled(const Matrices& m) {
  const Tiles tiles = tiles_of(m);
  return m.begins.size <= std::numeric_limits<std::int32_t>::max() / (tiles.across * tiles.down);
}

template <AxisMap (*moves)(const MoveArgs&, int)>
Prepared prepare(const PrepareArgs& p) {
  PermutePlan plan;
  plan.element = word_size(p.in(0).dtype);
  const AxisMap map = moves({p.attrs, p.types, p.inputs}, 0);
  const Layout<1> source = layout_of(Strided::whole(p.in(0).shape).part(p.out(0).shape, map));
  plan.is_tiled = source.rank > 0 && source.strides[0][source.rank - 1] != 1;
  if (plan.is_tiled) plan.matrices = matrices_of(source);
  plan.is_tiled = plan.is_tiled && can_be_tiled(plan.matrices);
  if (plan.is_tiled) {
    with_word(plan.element, [&]<class T>(T) { load_kernel(p, transpose_tiles<T>); });
  } else {
    plan.copy = make_strided_copy(p, map);
  }
  return {std::make_shared<PermutePlan>(plan)};
}

void run_matrices(const Matrices& m, int element, CudaArgs& a) {
  const Tiles tiles = tiles_of(m);
  with_word(element, [&]<class T>(T) {
    a.launch(transpose_tiles<T>, Extent{static_cast<unsigned>(tiles.across * tiles.down * m.begins.size)},
             Extent{kTile, kTileRows}, 0, a.in<T>(0), a.out<T>(0), m, tiles.across, tiles.down);
  });
}

// As many elements as a line of the cache has.
template <class T>
constexpr std::int64_t kLineOf = 64 / sizeof(T);

// Transposes a square by way of a buffer, so that each line of the operand is read once, and each of the result written
// once. Lines of a matrix are often at distances that the cache maps to the same few places, so they would not stay
// there.
template <class T>
void transpose_lines(const T* x, T* out, const Matrices& m, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kLine = kLineOf<T>;
  T square[kLine][kLine];
  for (std::int64_t r = 0; r < rows; ++r) copy_row(square[r], x + r * m.pitch, columns);
  if (rows == kLine) {  // a loop of a known length is faster
    for (std::int64_t c = 0; c < columns; ++c)
      for (std::int64_t r = 0; r < kLine; ++r) out[c * m.out_pitch + r] = square[r][c];
  } else {
    for (std::int64_t c = 0; c < columns; ++c)
      for (std::int64_t r = 0; r < rows; ++r) out[c * m.out_pitch + r] = square[r][c];
  }
}

void run_matrices(const Matrices& m, int element, const CpuArgs& a) {
  with_word(element, [&]<class T>(T) {
    for (std::int64_t i = 0; i < m.begins.size; ++i) {
      std::int64_t begins[2];
      m.begins.find(i, begins);
      const T* x = a.in<T>(0) + begins[0];
      T* out = a.out<T>(0) + begins[1];
      for (std::int64_t r = 0; r < m.rows; r += kLineOf<T>)
        for (std::int64_t c = 0; c < m.columns; c += kLineOf<T>)
          transpose_lines(x + r * m.pitch + c, out + c * m.out_pitch + r, m, std::min(kLineOf<T>, m.rows - r),
                          std::min(kLineOf<T>, m.columns - c));
    }
  });
}

template <class Args>
void body(Args& a) {
  const auto& plan = a.template local<PermutePlan>();
  plan.is_tiled ? run_matrices(plan.matrices, plan.element, a) : run_copy(plan.copy, a);
}

struct PermuteAttrs {
  std::vector<int> axes;
  static auto fields(auto& s) { return std::tie("axes", s.axes); }
};

std::vector<int> axes_from_front(std::vector<int> axes, int rank) {
  for (int& axis : axes) axis = from_front(axis, rank);
  return axes;
}

void infer_permute(InferArgs& a) {
  a.expect_inputs(1);
  const Shape& shape = a.in(0).shape;
  std::vector<int> axes = axes_from_front(a.attrs<PermuteAttrs>().axes, shape.rank()), sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  bool is_order = static_cast<int>(axes.size()) == shape.rank();
  for (std::size_t d = 0; is_order && d < sorted.size(); ++d) is_order = sorted[d] == static_cast<int>(d);
  if (!is_order) a.fail("the axes are not those of the operand in some order", "name each axis once");
  Shape out;
  for (int axis : axes) out.push_back(shape[axis]);
  a.out(a.in(0).dtype, out);
}

// Axis d of the result is axis axes[d] of the operand.
AxisMap permute_moves(const MoveArgs& a, int) {
  const auto& axes = a.attrs.as<PermuteAttrs>().axes;
  AxisMap map;
  for (std::size_t d = 0; d < axes.size(); ++d) map.axes[d].of_whole = from_front(axes[d], a.in(0).shape.rank());
  return map;
}

std::vector<Value> permute_grad(const GradArgs& a) {
  std::vector<int> axes = axes_from_front(a.attrs.as<PermuteAttrs>().axes, a.inputs[0].shape().rank());
  std::vector<int> back(axes.size());
  for (std::size_t d = 0; d < axes.size(); ++d) back[at(axes[d])] = static_cast<int>(d);
  return {permute(Arg(a.grads[0], a.where), back)};
}

const OpDef permute_op{.name = "permute",
                       .infer = infer_permute,
                       .traits = {.kernels_wait = true},
                       .prepare = prepare<permute_moves>,
                       .bodies = {body<const CpuArgs>, body<CudaArgs>},
                       .grad = permute_grad,
                       .moves = permute_moves};

void infer_transpose(InferArgs& a) {
  a.expect_inputs(1);
  Shape shape = a.in(0).shape;
  if (shape.rank() < 2) a.fail("needs two axes", "reshape() the operand first");
  std::swap(shape[-1], shape[-2]);
  a.out(a.in(0).dtype, shape);
}

AxisMap transpose_moves(const MoveArgs& a, int) {
  AxisMap map;
  const int rank = a.in(0).shape.rank();
  std::swap(map.axes[rank - 1], map.axes[rank - 2]);
  return map;
}

std::vector<Value> transpose_grad(const GradArgs& a) { return {transpose(Arg(a.grads[0], a.where))}; }

const OpDef transpose_op{.name = "transpose",
                         .infer = infer_transpose,
                         .traits = {.kernels_wait = true},
                         .prepare = prepare<transpose_moves>,
                         .bodies = {body<const CpuArgs>, body<CudaArgs>},
                         .grad = transpose_grad,
                         .moves = transpose_moves};

}  // namespace

Value permute(Arg x, std::vector<int> axes, Placement placement) {
  return emit(permute_op, {x}, PermuteAttrs{std::move(axes)}, placement)[0];
}
Value transpose(Arg x, Placement placement) { return emit(transpose_op, {x}, {}, placement)[0]; }

std::span<const FileOp> transpose_file_ops() {
  static constexpr FileOp ops[] = {file_op(transpose_op), file_op<PermuteAttrs>(permute_op)};
  return ops;
}

}  // namespace graphsink
