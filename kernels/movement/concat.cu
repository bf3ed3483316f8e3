// concat and split: tensors as pieces of the rows of one tensor.
#include "base/at.h"
#include "base/sizes.h"
#include "graphsink/ops.h"
#include "ir/graph_data.h"
#include "kernels/file_ops.h"
#include "kernels/support/multi_tensor.h"
#include "kernels/support/reduce_ops.h"
#include "kernels/support/tiles.h"
#include "kernels/support/words.h"

namespace graphsink {
namespace {

constexpr std::int64_t kChunk = kThreads * 4;  // words for a block

// The rows of the whole are made of those of the pieces: [rows, pitch] and [rows, width] for each piece.
struct RowsPlan {
  std::int64_t rows = 1;
  std::int64_t pitch = 0;            // words
  std::vector<std::int64_t> widths;  // words
  int word = 1;                      // bytes
};

// Tables hold (piece, its first word in the whole); is_concat: from the pieces to the whole.
template <class T, bool is_concat>
__global__ void copy_pieces(TensorTable<2> table, std::int64_t rows, std::int64_t pitch) {
  wait_for_inputs();
  Chunk chunk = chunk_of_block(table, kChunk);
  T* piece = static_cast<T*>(table.pointers[chunk.tensor][0]);
  T* whole = static_cast<T*>(table.pointers[chunk.tensor][1]);
  std::int64_t width = table.sizes[chunk.tensor] / rows;
  for (std::int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += blockDim.x) {
    std::int64_t row = quotient(i, width);
    T& in_whole = whole[row * pitch + (i - row * width)];
    is_concat ? in_whole = piece[i] : piece[i] = in_whole;
  }
}

template <bool is_concat>
Prepared prepare_rows(const PrepareArgs& p, const TensorType& whole, std::span<const TensorType> pieces, int axis) {
  RowsPlan plan;
  int d = from_front(axis, whole.shape.rank());
  for (int i = 0; i < d; ++i) plan.rows *= whole.shape[i];
  std::int64_t inner = static_cast<std::int64_t>(size_of(whole.dtype));
  for (int i = d + 1; i < whole.shape.rank(); ++i) inner *= whole.shape[i];
  plan.word = 16;
  for (const TensorType& piece : pieces) plan.word = word_size({plan.word, piece.shape[d] * inner});
  for (const TensorType& piece : pieces) plan.widths.push_back(piece.shape[d] * inner / plan.word);
  plan.pitch = whole.shape[d] * inner / plan.word;
  with_word(plan.word, [&]<class T>(T) { load_kernel(p, copy_pieces<T, is_concat>); });
  return {std::make_shared<RowsPlan>(std::move(plan))};
}

// f(piece i, its first word in the rows of the whole, its words in a row)
template <class F>
void for_each_piece(const RowsPlan& plan, const F& f) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < plan.widths.size(); at += plan.widths[i++]) f(static_cast<int>(i), at, plan.widths[i]);
}

template <bool is_concat>
void rows_cuda(CudaArgs& a) {
  const auto& plan = a.local<RowsPlan>();
  if (plan.rows == 0) return;
  with_word(plan.word, [&]<class T>(T) {
    auto launch = [&](const TensorTable<2>& table, Extent blocks) {
      a.launch(copy_pieces<T, is_concat>, blocks, Extent{static_cast<unsigned>(kThreads)}, 0, table, plan.rows,
               plan.pitch);
    };
    TensorTables<2, decltype(launch)> tables(kChunk, launch);
    T* whole = is_concat ? a.out<T>(0) : a.in_out<T>(0);
    for_each_piece(plan, [&](int i, std::int64_t at, std::int64_t width) {
      tables.add({is_concat ? a.in_out<void>(i) : a.out<void>(i), whole + at}, plan.rows * width);
    });
    tables.flush();
  });
}

// Words of the whole in one tile.
std::int64_t words_of_tile(const RowsPlan& plan) { return kTileElements * 4 / plan.word; }
std::int64_t count_word_tiles(const BodyArgs& a) {
  const auto& plan = a.local<RowsPlan>();
  const std::int64_t words = words_of_tile(plan);
  return std::max<std::int64_t>(1, (plan.rows * plan.pitch + words - 1) / words);
}
template <bool is_concat>
void run_word_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const auto& plan = a.local<RowsPlan>();
  const std::int64_t word = plan.word;
  const std::int64_t begin = first * words_of_tile(plan);
  const std::int64_t stop = std::min(end * words_of_tile(plan), plan.rows * plan.pitch);
  if (begin >= stop) return;
  // The rows that the tiles have whole; there may be parts of one before and of one behind them.
  const std::int64_t first_row = (begin + plan.pitch - 1) / plan.pitch, end_row = stop / plan.pitch;
  for_each_piece(plan, [&](int i, std::int64_t at, std::int64_t width) {
    // Words [from, to) of the piece in `rows` rows.
    auto copy = [&](std::int64_t row, std::int64_t rows, std::int64_t from, std::int64_t to) {
      const std::int64_t in_piece = (row * width + from) * word, in_whole = (row * plan.pitch + at + from) * word;
      const std::int64_t bytes = (to - from) * word;
      if constexpr (is_concat) {
        copy_rows(a.out<std::byte>(0) + in_whole, plan.pitch * word, a.in<std::byte>(i) + in_piece, width * word, rows,
                  bytes);
      } else {
        copy_rows(a.out<std::byte>(i) + in_piece, width * word, a.in<std::byte>(0) + in_whole, plan.pitch * word, rows,
                  bytes);
      }
    };
    auto copy_part = [&](std::int64_t row) {
      const std::int64_t start = row * plan.pitch + at;
      const std::int64_t from = std::max<std::int64_t>(begin - start, 0), to = std::min(stop - start, width);
      if (from < to) copy(row, 1, from, to);
    };
    if (width == 0) return;
    if (begin < first_row * plan.pitch) copy_part(first_row - 1);
    if (first_row < end_row) copy(first_row, end_row - first_row, 0, width);
    if (end_row >= first_row && end_row * plan.pitch < stop) copy_part(end_row);
  });
}
template <bool is_concat>
constexpr Tiles kWordTiles{count_word_tiles, run_word_tiles<is_concat>};

struct AxisAttrs {
  int axis;
  static auto fields(auto& s) { return std::tie("axis", s.axis); }
};

void infer_concat(InferArgs& a) {
  a.expect_same_dtype(a.inputs());
  int axis = axis_from_front(a, a.attrs<AxisAttrs>().axis, a.in(0).shape.rank());
  Shape out = a.in(0).shape;
  out[axis] = 0;
  for (int i = 0; i < a.inputs(); ++i) {
    Shape rest = a.in(i).shape;
    std::int64_t size = axis < rest.rank() ? std::exchange(rest[axis], 0) : 0;
    Shape wanted = out;
    wanted[axis] = 0;
    if (rest != wanted) a.fail("the shapes differ beside the axis", "make them equal but for one axis");
    out[axis] = sum_of_sizes(out[axis], size);
  }
  a.out(a.in(0).dtype, out);
}

Prepared prepare_concat(const PrepareArgs& p) {
  return prepare_rows<true>(p, p.out(0), p.types.first(static_cast<std::size_t>(p.inputs)),
                            p.attrs.as<AxisAttrs>().axis);
}

// Inputs: the whole, then tensors of the shapes of its parts (shape only).
void infer_split_like(InferArgs& a) {
  const int axis = axis_from_front(a, a.attrs<AxisAttrs>().axis, a.in(0).shape.rank());
  Shape rest = a.in(0).shape;
  for (int i = 1; i < a.inputs(); ++i) {
    Shape part = a.in(i).shape, wanted = a.in(0).shape;
    const bool fits = part.rank() == rest.rank() && part[axis] <= rest[axis];
    if (fits) rest[axis] -= part[axis];
    if (fits) wanted[axis] = part[axis];
    if (!fits || part != wanted) a.fail("the parts do not make up the first", "pass the operands of its concat()");
  }
  if (rest[axis] != 0) a.fail("the parts do not make up the first", "pass the operands of its concat()");
  for (int i = 1; i < a.inputs(); ++i) a.out(a.in(0).dtype, a.in(i).shape);
}
Access split_like_access(int operand, int) { return operand == 0 ? Access::read : Access::shape_only; }

Prepared prepare_split(const PrepareArgs& p) {
  return prepare_rows<false>(p, p.in(0), p.types.subspan(static_cast<std::size_t>(p.inputs)),
                             p.attrs.as<AxisAttrs>().axis);
}

// OpDef::moves, of the pieces number `piece`, which are the operands or the outputs.
template <class Attrs, bool is_concat>
AxisMap piece_moves(const MoveArgs& a, int piece) {
  const int d = from_front(a.attrs.as<Attrs>().axis, a.in(0).shape.rank());
  AxisMap map;
  for (int i = 0; i < piece; ++i) map.axes[d].begin += (is_concat ? a.in(i) : a.out(i)).shape[d];
  return map;
}

// Parts that no gradient reaches have zeros.
Value whole_gradient(const GradArgs& a, int axis) {
  std::vector<Value> parts;
  for (std::size_t i = 0; i < a.outputs.size(); ++i)
    parts.push_back(a.grads[i].valid() ? a.grads[i] : broadcast_like(Arg(0.0, a.where), a.outputs[i]));
  return concat(operands(parts, a.where), axis);
}

std::vector<Value> split_like_grad(const GradArgs& a) {
  std::vector<Value> result(a.inputs.size());
  result[0] = whole_gradient(a, a.attrs.as<AxisAttrs>().axis);
  return result;
}

const OpDef split_like_op{.name = "split_like",
                          .infer = infer_split_like,
                          .access = split_like_access,
                          .traits = {.kernels_wait = true},
                          .prepare = prepare_split,
                          .bodies = {kWordTiles<false>, rows_cuda<false>},
                          .grad = split_like_grad,
                          .moves = piece_moves<AxisAttrs, false>};

std::vector<Value> concat_grad(const GradArgs& a) {
  std::vector<Arg> args{Arg(a.grads[0], a.where)};
  for (const Value& input : a.inputs) args.emplace_back(input, a.where);
  return emit(split_like_op, args, a.attrs);
}

const OpDef concat_op{.name = "concat",
                      .infer = infer_concat,
                      .traits = {.kernels_wait = true},
                      .prepare = prepare_concat,
                      .bodies = {kWordTiles<true>, rows_cuda<true>},
                      .grad = concat_grad,
                      .moves = piece_moves<AxisAttrs, true>};

struct SplitAttrs {
  int axis;
  std::vector<std::int64_t> sizes;  // sizes of the parts, if `parts` is 0
  int parts = 0;                    // number of parts of equal size, or 0
  static auto fields(auto& s) { return std::tie("axis", s.axis, "sizes", s.sizes, "parts", s.parts); }
};

void infer_split(InferArgs& a) {
  a.expect_inputs(1);
  const auto& attrs = a.attrs<SplitAttrs>();
  int axis = axis_from_front(a, attrs.axis, a.in(0).shape.rank());
  Shape shape = a.in(0).shape;
  std::vector<std::int64_t> sizes = attrs.sizes;
  // Files have the number alone, and a few bytes must not take much memory.
  constexpr std::int64_t kMostParts = std::int64_t{1} << 16;
  if (attrs.parts > kMostParts) a.fail("makes more than 2^16 parts", "make fewer");
  if (attrs.parts > 0) sizes.assign(static_cast<std::size_t>(attrs.parts), shape[axis] / attrs.parts);
  bool fits = !sizes.empty();
  std::int64_t rest = shape[axis];
  for (std::int64_t size : sizes) {
    fits = fits && size >= 0 && size <= rest;
    if (fits) rest -= size;
  }
  if (!fits || rest != 0)
    a.fail("the parts do not make up the axis", "give sizes that add up to it, or a number of parts that divides it");
  for (std::int64_t size : sizes) {
    shape[axis] = size;
    a.out(a.in(0).dtype, shape);
  }
}

Prepared prepare_split_op(const PrepareArgs& p) {
  return prepare_rows<false>(p, p.in(0), p.types.subspan(static_cast<std::size_t>(p.inputs)),
                             p.attrs.as<SplitAttrs>().axis);
}

std::vector<Value> split_grad(const GradArgs& a) { return {whole_gradient(a, a.attrs.as<SplitAttrs>().axis)}; }

const OpDef split_op{.name = "split",
                     .infer = infer_split,
                     .traits = {.kernels_wait = true},
                     .prepare = prepare_split_op,
                     .bodies = {kWordTiles<false>, rows_cuda<false>},
                     .grad = split_grad,
                     .moves = piece_moves<SplitAttrs, false>};

}  // namespace

namespace {
void require_values(const char* op, const std::vector<Arg>& values, const Where& where) {
  if (values.empty()) throw Error(op, where, "there are no values to join", "give one at least");
}
}  // namespace

Value concat(const std::vector<Arg>& values, int axis, Placement placement, Where where) {
  require_values("concat", values, where);
  return emit(concat_op, values, AxisAttrs{axis}, placement)[0];
}
Value stack(const std::vector<Arg>& values, int axis, Placement placement, Where where) {
  require_values("stack", values, where);
  std::vector<Value> parts = operand_values("stack", values);
  std::vector<Arg> rows;
  for (std::size_t i = 0; i < parts.size(); ++i)
    rows.emplace_back(unsqueeze(Arg(parts[i], values[i].where()), axis), values[i].where());
  return concat(rows, axis, placement, where);
}
std::vector<Value> split(Arg x, std::vector<std::int64_t> sizes, int axis, Placement placement) {
  return emit(split_op, {x}, SplitAttrs{axis, std::move(sizes)}, placement);
}
std::vector<Value> split(Arg x, int parts, int axis, Placement placement) {
  return emit(split_op, {x}, SplitAttrs{axis, {}, parts}, placement);
}

std::span<const FileOp> concat_file_ops() {
  static constexpr FileOp ops[] = {file_op<AxisAttrs>(concat_op), file_op<AxisAttrs>(split_like_op),
                                   file_op<SplitAttrs>(split_op)};
  return ops;
}

}  // namespace graphsink
