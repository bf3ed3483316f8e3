// tril and triu: matrices with zeros above or below a diagonal. Elements are moved, whatever they are.
#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/support/tiles.h"
#include "kernels/support/words.h"

namespace graphsink {
namespace {

struct TriangleAttrs {
  std::int64_t diagonal;
  bool is_upper;
  static auto fields(auto& s) { return std::tie("diagonal", s.diagonal, "is_upper", s.is_upper); }
};

// Element (r, c) of each matrix is kept if c - r is at most, or at least, the number of the diagonal.
struct Triangle {
  std::int64_t rows, columns, diagonal;
  bool is_upper;
  HD bool keeps(std::int64_t i) const {
    std::int64_t line = quotient(i, columns), distance = i - line * columns - (line - quotient(line, rows) * rows);
    return is_upper ? distance >= diagonal : distance <= diagonal;
  }
};

template <class T>
__global__ void keep_triangle(const T* x, T* out, std::int64_t size, Triangle triangle) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) out[i] = triangle.keeps(i) ? x[i] : T{};
}

Triangle triangle_of(const BodyArgs& a) {
  const auto& [diagonal, is_upper] = a.attrs<TriangleAttrs>();
  const Shape& shape = a.in_type(0).shape;
  return {shape[-2], shape[-1], diagonal, is_upper};
}

void triangle_cuda(CudaArgs& a) {
  std::int64_t size = a.out_type(0).shape.size();
  with_word(word_size(a.in_type(0).dtype), [&]<class T>(T) {
    a.launch(keep_triangle<T>, launch_size(size), a.in<T>(0), a.out<T>(0), size, triangle_of(a));
  });
}
void run_triangle_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  Triangle triangle = triangle_of(a);
  const std::int64_t stop = std::min(end * kTileElements, a.out_type(0).shape.size());
  with_word(word_size(a.in_type(0).dtype), [&]<class T>(T) {
    for (std::int64_t i = first * kTileElements; i < stop; ++i)
      a.out<T>(0)[i] = triangle.keeps(i) ? a.in<T>(0)[i] : T{};
  });
}
constexpr Tiles kTriangleTiles{count_part_tiles, run_triangle_tiles};

void infer_triangle(InferArgs& a) {
  a.expect_inputs(1);
  if (a.in(0).shape.rank() < 2) a.fail("needs two axes", "reshape() the operand");
  a.out(a.in(0).dtype, a.in(0).shape);
}

Prepared prepare_triangle(const PrepareArgs& p) {
  with_word(word_size(p.in(0).dtype), [&]<class T>(T) { load_kernel(p, keep_triangle<T>); });
  return {};
}

std::vector<Value> triangle_grad(const GradArgs& a) {
  const auto& [diagonal, is_upper] = a.attrs.as<TriangleAttrs>();
  Arg g(a.grads[0], a.where);
  return {is_upper ? triu(g, diagonal) : tril(g, diagonal)};
}

constexpr Alias kInPlace[] = {{0, 0}};
constexpr OpDef triangle_op(std::string_view name) {
  return {.name = name,
          .infer = infer_triangle,
          .in_place = kInPlace,
          .traits = {.kernels_wait = true},
          .prepare = prepare_triangle,
          .bodies = {kTriangleTiles, triangle_cuda},
          .grad = triangle_grad};
}
const OpDef tril_op = triangle_op("tril");
const OpDef triu_op = triangle_op("triu");

}  // namespace

Value tril(Arg x, std::int64_t diagonal, Placement placement) {
  return emit(tril_op, {x}, TriangleAttrs{diagonal, false}, placement)[0];
}
Value triu(Arg x, std::int64_t diagonal, Placement placement) {
  return emit(triu_op, {x}, TriangleAttrs{diagonal, true}, placement)[0];
}

std::span<const FileOp> triangle_file_ops() {
  static constexpr FileOp ops[] = {file_op<TriangleAttrs>(tril_op), file_op<TriangleAttrs>(triu_op)};
  return ops;
}

}  // namespace graphsink
