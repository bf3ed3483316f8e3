// one_hot: a line of zeros with a one at an index.
#include <algorithm>

#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/movement/indexed.h"
#include "kernels/support/dtype.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

struct OneHotAttrs {
  std::int64_t classes;
  DType dtype;
  static auto fields(auto& s) { return std::tie("classes", s.classes, "dtype", s.dtype); }
};

template <class Body>
void for_any(DType dtype, const Body& body) {
  for_dtype<float, double, half, bfloat16, std::int32_t, std::int64_t, std::uint8_t, bool>(dtype, body);
}

template <class T>
__global__ void mark_indices(const std::int32_t* indices, T* out, std::int64_t size, std::int64_t classes,
                             StepBlock* step, int node) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) {
    std::int64_t line = quotient(i, classes), place = i - line * classes, index = indices[line];
    out[i] = static_cast<T>(index == place ? 1.0f : 0.0f);
    if (place == 0 && (index < 0 || index >= classes)) fail_step(step, node, StepError::index, index);
  }
}

void one_hot_cuda(CudaArgs& a) {
  auto [classes, dtype] = a.attrs<OneHotAttrs>();
  std::int64_t size = a.out_type(0).shape.size();
  for_any(dtype, [&]<class T>() {
    a.launch(mark_indices<T>, launch_size(size), a.in<std::int32_t>(0), a.out<T>(0), size, classes, a.step(), a.id());
  });
}

// Number of tiles. A tile is some lines of the result, one line for each index.
std::int64_t count_one_hot_tiles(const BodyArgs& a) {
  return count_row_tiles(a.in_type(0).shape.size(), a.attrs<OneHotAttrs>().classes);
}
void run_one_hot_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  auto [classes, dtype] = a.attrs<OneHotAttrs>();
  const auto* indices = a.in<std::int32_t>(0);
  const std::int64_t lines = a.in_type(0).shape.size();
  const RowRange range(first, end, lines, classes);
  auto is_class = [classes = classes](std::int64_t index) { return index >= 0 && index < classes; };
  bool is_bad = false;
  for_any(dtype, [&, classes = classes]<class T>() {
    std::fill(a.out<T>(0) + range.first * classes, a.out<T>(0) + range.end * classes, static_cast<T>(0.0f));
    for (std::int64_t line = range.first; line < range.end; ++line) {
      if (is_class(indices[line])) a.out<T>(0)[line * classes + indices[line]] = static_cast<T>(1.0f);
      is_bad = is_bad || !is_class(indices[line]);
    }
  });
  // The first of all, whichever tiles fail first.
  if (is_bad) fail_step(a, StepError::index, *std::find_if_not(indices, indices + lines, is_class));
}
constexpr Tiles kOneHotTiles{count_one_hot_tiles, run_one_hot_tiles};

void infer_one_hot(InferArgs& a) {
  a.expect_inputs(1);
  const auto& [classes, dtype] = a.attrs<OneHotAttrs>();
  expect_indices(a, 0);
  if (classes < 1) a.fail("with " + std::to_string(classes) + " classes", "pass a number of at least 1");
  if (a.in(0).shape.rank() == Shape::kMaxRank) a.fail("too many axes", "reshape() the indices");
  Shape out = a.in(0).shape;
  out.push_back(classes);
  a.out(dtype, out);
}

Prepared prepare_one_hot(const PrepareArgs& p) {
  for_any(p.out(0).dtype, [&]<class T>() { load_kernel(p, mark_indices<T>); });
  return {};
}

const OpDef one_hot_op{.name = "one_hot",
                       .infer = infer_one_hot,
                       .traits = {.kernels_wait = true},
                       .prepare = prepare_one_hot,
                       .bodies = {kOneHotTiles, one_hot_cuda}};

}  // namespace

Value one_hot(Arg indices, std::int64_t classes, DType dtype, Placement placement) {
  return emit(one_hot_op, {indices}, OneHotAttrs{classes, dtype}, placement)[0];
}

std::span<const FileOp> one_hot_file_ops() {
  static constexpr FileOp ops[] = {file_op<OneHotAttrs>(one_hot_op)};
  return ops;
}

}  // namespace graphsink
