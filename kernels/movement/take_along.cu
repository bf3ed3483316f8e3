// take_along_axis: elements of each line by places of its own. Its gradient adds up what comes from equal places in
// their order, the same on every run.
#include "kernels/movement/take_along.h"

#include <algorithm>

#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/movement/indexed.h"
#include "kernels/support/dtype.h"
#include "kernels/support/lines.h"
#include "kernels/support/tiles.h"
#include "kernels/support/words.h"

namespace graphsink {
namespace {

// Line by line of both: `of` is the tensor that has the places, `taken` the one with an element for each index.
struct TwoLines {
  Lines of, taken;
};
TwoLines two_lines(const Shape& of, const Shape& taken, int axis) {
  return {lines_of(of, axis), lines_of(taken, axis)};
}

template <class T>
__global__ void take_words(const T* x, const std::int32_t* indices, T* out, TwoLines lines, StepBlock* step, int node) {
  wait_for_inputs();
  const auto& [of, taken] = lines;
  std::int64_t size = taken.count() * taken.length;
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) {
    std::int64_t above = quotient(i, taken.inner), outer = quotient(above, taken.length), place = indices[i];
    bool is_place = place >= 0 && place < of.length;
    out[i] = is_place ? x[(outer * of.length + place) * of.inner + (i - above * taken.inner)] : T{};
    if (!is_place) fail_step(step, node, StepError::index, place);
  }
}

void take_cuda(CudaArgs& a) {
  TwoLines lines = two_lines(a.in_type(0).shape, a.in_type(1).shape, a.attrs<TakeAlongAttrs>().axis);
  with_word(word_size(a.in_type(0).dtype), [&]<class T>(T) {
    a.launch(take_words<T>, launch_size(a.out_type(0).shape.size()), a.in<T>(0), a.in<std::int32_t>(1), a.out<T>(0),
             lines, a.step(), a.id());
  });
}

void run_take_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  auto [of, taken] = two_lines(a.in_type(0).shape, a.in_type(1).shape, a.attrs<TakeAlongAttrs>().axis);
  const auto* indices = a.in<std::int32_t>(1);
  const std::int64_t size = a.out_type(0).shape.size();
  bool is_bad = false;
  with_word(word_size(a.in_type(0).dtype), [&, of = of, taken = taken]<class T>(T) {
    for (std::int64_t i = first * kTileElements; i < std::min(size, end * kTileElements); ++i) {
      std::int64_t above = i / taken.inner, outer = above / taken.length, place = indices[i];
      bool is_place = place >= 0 && place < of.length;
      a.out<T>(0)[i] = is_place ? a.in<T>(0)[(outer * of.length + place) * of.inner + i % taken.inner] : T{};
      is_bad = is_bad || !is_place;
    }
  });
  if (!is_bad) return;
  // The first of all, whichever tiles fail first.
  const auto* bad = std::find_if(indices, indices + size,
                                 [&, of = of](std::int64_t place) { return place < 0 || place >= of.length; });
  fail_step(a, StepError::index, *bad);
}
constexpr Tiles kTakeTiles{count_part_tiles, run_take_tiles};

void infer_take(InferArgs& a) {
  a.expect_inputs(2);
  const Shape &x = a.in(0).shape, &indices = a.in(1).shape;
  int axis = axis_from_front(a, a.attrs<TakeAlongAttrs>().axis, x.rank());
  expect_indices(a, 1);
  bool fits = indices.rank() == x.rank();
  for (int d = 0; fits && d < x.rank(); ++d) fits = d == axis || indices[d] == x[d];
  if (!fits)
    a.fail("the shapes differ beside axis " + std::to_string(axis), "give each line of the axis its own indices");
  a.out(a.in(0).dtype, indices);
}

Prepared prepare_take(const PrepareArgs& p) {
  with_word(word_size(p.in(0).dtype), [&]<class T>(T) { load_kernel(p, take_words<T>); });
  return {};
}

// --- the gradient: g, indices, x (shape only)

// A thread for each line.
template <class T>
__global__ void add_along(const T* g, const std::int32_t* indices, Wide<T>* sums, TwoLines lines) {
  wait_for_inputs();
  const auto& [of, taken] = lines;
  for (std::int64_t line = thread_index(); line < taken.count(); line += all_threads()) {
    std::int64_t from = taken.first(line), to = of.first(line);
    for (std::int64_t k = 0; k < taken.length; ++k, from += taken.inner) {
      std::int64_t place = indices[from];
      if (place >= 0 && place < of.length) sums[to + place * of.inner] += static_cast<Wide<T>>(g[from]);
    }
  }
}
template <class T>
__global__ void store_sums(const Wide<T>* sums, T* out, std::int64_t size) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) out[i] = static_cast<T>(sums[i]);
}

// Halves are summed in the workspace.
template <class T>
Wide<T>* sums_of(const BodyArgs& a) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return a.out<T>(0);
  } else {
    return static_cast<Wide<T>*>(a.workspace());
  }
}

template <class T>
void add_on(CudaArgs& a, const TwoLines& lines) {
  std::int64_t size = a.out_type(0).shape.size();
  LaunchSize all = launch_size(size), each = launch_size(lines.taken.count());
  auto* sums = sums_of<T>(a);
  a.launch(fill_zeros<Wide<T>>, all, sums, size);
  a.launch(add_along<T>, each, a.in<T>(0), a.in<std::int32_t>(1), sums, lines);
  if constexpr (!std::is_same_v<T, Wide<T>>) a.launch(store_sums<T>, all, sums, a.out<T>(0), size);
}
template <class T>
void add_on(const CpuArgs& a, const TwoLines& lines, const RowRange& outer) {
  const auto& [of, taken] = lines;
  const auto* indices = a.in<std::int32_t>(1);
  const std::int64_t begin = outer.first * of.length * of.inner, end = outer.end * of.length * of.inner;
  auto* sums = sums_of<T>(a);
  std::fill(sums + begin, sums + end, Wide<T>(0));
  for (std::int64_t i = outer.first * taken.length * taken.inner; i < outer.end * taken.length * taken.inner; ++i) {
    std::int64_t above = i / taken.inner, place = indices[i];
    if (place >= 0 && place < of.length)
      sums[(above / taken.length * of.length + place) * of.inner + i % taken.inner] +=
          static_cast<Wide<T>>(a.in<T>(0)[i]);
  }
  if constexpr (!std::is_same_v<T, Wide<T>>)
    std::transform(sums + begin, sums + end, a.out<T>(0) + begin, [](Wide<T> sum) { return static_cast<T>(sum); });
}

TwoLines lines_of_grad(const BodyArgs& a) {
  return two_lines(a.out_type(0).shape, a.in_type(1).shape, a.attrs<TakeAlongAttrs>().axis);
}
void add_cuda(CudaArgs& a) {
  const TwoLines lines = lines_of_grad(a);
  for_dtype<float, double, half, bfloat16>(a.out_type(0).dtype, [&]<class T>() { add_on<T>(a, lines); });
}

// Tiles of both gradients: each has some indices of the axes before the one that has places.
std::int64_t outer_size(const TwoLines& lines) { return (lines.of.length + lines.taken.length) * lines.of.inner; }
std::int64_t count_grad_tiles(const BodyArgs& a) {
  const TwoLines lines = lines_of_grad(a);
  return count_row_tiles(lines.of.outer, outer_size(lines));
}
void run_add_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const TwoLines lines = lines_of_grad(a);
  const RowRange outer(first, end, lines.of.outer, outer_size(lines));
  for_dtype<float, double, half, bfloat16>(a.out_type(0).dtype, [&]<class T>() { add_on<T>(a, lines, outer); });
}
constexpr Tiles kAddTiles{count_grad_tiles, run_add_tiles};

// --- the gradient where the places of a line differ: nothing is added up

// A block for each line of dx.
template <class T>
__global__ void place_along(const T* g, const std::int32_t* indices, T* dx, TwoLines lines) {
  wait_for_inputs();
  const auto& [of, taken] = lines;
  for (std::int64_t line = blockIdx.x; line < of.count(); line += gridDim.x) {
    T* to = dx + of.first(line);
    for (std::int64_t i = threadIdx.x; i < of.length; i += blockDim.x) to[i * of.inner] = T(0);
    __syncthreads();
    for (std::int64_t k = threadIdx.x; k < taken.length; k += blockDim.x) {
      std::int64_t from = taken.first(line) + k * taken.inner;
      to[indices[from] * of.inner] = g[from];
    }
  }
}

template <class T>
void place_on(CudaArgs& a, const TwoLines& lines) {
  auto blocks = static_cast<unsigned>(std::min(lines.of.count(), kMaxBlocks));
  a.launch(place_along<T>, Extent{blocks}, Extent{static_cast<unsigned>(kThreads)}, 0, a.in<T>(0),
           a.in<std::int32_t>(1), a.out<T>(0), lines);
}
template <class T>
void place_on(const CpuArgs& a, const TwoLines& lines, const RowRange& outer) {
  const auto& [of, taken] = lines;
  std::fill(a.out<T>(0) + outer.first * of.length * of.inner, a.out<T>(0) + outer.end * of.length * of.inner, T(0));
  for (std::int64_t i = outer.first * taken.length * taken.inner; i < outer.end * taken.length * taken.inner; ++i) {
    std::int64_t above = i / taken.inner, place = a.in<std::int32_t>(1)[i];
    a.out<T>(0)[(above / taken.length * of.length + place) * of.inner + i % taken.inner] = a.in<T>(0)[i];
  }
}

void place_cuda(CudaArgs& a) {
  const TwoLines lines = lines_of_grad(a);
  for_dtype<float, double, half, bfloat16>(a.out_type(0).dtype, [&]<class T>() { place_on<T>(a, lines); });
}
void run_place_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const TwoLines lines = lines_of_grad(a);
  const RowRange outer(first, end, lines.of.outer, outer_size(lines));
  for_dtype<float, double, half, bfloat16>(a.out_type(0).dtype, [&]<class T>() { place_on<T>(a, lines, outer); });
}
constexpr Tiles kPlaceTiles{count_grad_tiles, run_place_tiles};

void infer_grad(InferArgs& a) {
  a.expect_inputs(3);
  expect_dtype<float, double, half, bfloat16>(a, 0);
  a.expect_input(0, a.outputs_of(infer_take, {a.in(2), a.in(1)})[0].shape);
  a.out(a.in(0).dtype, a.in(2).shape);
}
Access grad_access(int operand, int) { return operand == 2 ? Access::shape_only : Access::read; }

Prepared prepare_add(const PrepareArgs& p) {
  for_dtype<float, double, half, bfloat16>(
      p.out(0).dtype, [&]<class T>() { load_kernels<fill_zeros<Wide<T>>, add_along<T>, store_sums<T>>(p); });
  return {nullptr, is_half(p.out(0).dtype) ? static_cast<std::size_t>(p.out(0).shape.size()) * sizeof(float) : 0};
}
Prepared prepare_place(const PrepareArgs& p) {
  for_dtype<float, double, half, bfloat16>(p.out(0).dtype, [&]<class T>() { load_kernel(p, place_along<T>); });
  return {};
}

// The gradient of either gradient op.
std::vector<Value> grad_of_grad(const GradArgs& a) {
  return {take_along_axis(Arg(a.grads[0], a.where), a.inputs[1], a.attrs.as<TakeAlongAttrs>().axis), Value(), Value()};
}

const OpDef add_along_op{.name = "take_along_axis_grad",
                         .infer = infer_grad,
                         .access = grad_access,
                         .traits = {.kernels_wait = true},
                         .prepare = prepare_add,
                         .bodies = {kAddTiles, add_cuda},
                         .grad = grad_of_grad};

std::vector<Value> take_grad(const GradArgs& a) {
  return {emit(add_along_op, {Arg(a.grads[0], a.where), a.inputs[1], a.inputs[0]}, a.attrs)[0], Value()};
}

const OpDef take_along_op{.name = "take_along_axis",
                          .infer = infer_take,
                          .traits = {.kernels_wait = true},
                          .prepare = prepare_take,
                          .bodies = {kTakeTiles, take_cuda},
                          .grad = take_grad};

}  // namespace

const OpDef place_along_op{.name = "place_along_axis",
                           .infer = infer_grad,
                           .access = grad_access,
                           .traits = {.kernels_wait = true},
                           .prepare = prepare_place,
                           .bodies = {kPlaceTiles, place_cuda},
                           .grad = grad_of_grad};

Value take_along_axis(Arg x, Arg indices, int axis, Placement placement) {
  return emit(take_along_op, {x, indices}, TakeAlongAttrs{axis}, placement)[0];
}

std::span<const FileOp> take_along_file_ops() {
  static constexpr FileOp ops[] = {file_op<TakeAlongAttrs>(take_along_op), file_op<TakeAlongAttrs>(add_along_op),
                                   file_op<TakeAlongAttrs>(place_along_op)};
  return ops;
}

}  // namespace graphsink
