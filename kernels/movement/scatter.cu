// scatter_add, and the gradients of gather and embedding: sums of elements at indices, which add up in the order of the
// indices. The kernels sort the indices, with their places, so that those of a row are neighbours.
#include <bit>
#include <optional>

#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/movement/indexed.h"
#include "kernels/movement/sort.h"
#include "kernels/support/block.h"
#include "kernels/support/cub.h"
#include "kernels/support/dtype.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

struct ScatterPlan {
  IndexedPlan of;
  RadixSort sort;
  // A number above those of all rows that an i32 can name.
  HD std::int64_t row_behind() const { return of.rows < kRowsOfI32 ? of.rows : kRowsOfI32; }
  static constexpr std::int64_t kRowsOfI32 = std::int64_t{1} << 31;
};

// An index above its place: keys differ, and those of one row are in the order of their places.
using Key = std::uint64_t;
HD Key key_of(std::int64_t index, std::int64_t place) {
  return Key{static_cast<std::uint32_t>(index)} << 32 | static_cast<Key>(place);
}

bool is_long(const ScatterPlan& plan) { return plan.of.count > kBlockSort; }

struct LessKey {
  __device__ bool operator()(Key a, Key b) const { return a < b; }
};

// The key of place `place`. An index out of range fails the step; its key is above those of all rows.
__device__ inline Key checked_key(const std::int32_t* indices, std::int64_t place, const ScatterPlan& plan,
                                  StepBlock* step, int node) {
  std::int64_t index = indices[place];
  if (index >= 0 && index < plan.of.rows) return key_of(index, place);
  fail_step(step, node, StepError::index, index);
  return key_of(plan.row_behind(), place);
}

// Up to kBlockSort keys, `padded` to a power of 2, are sorted by one block.
__global__ void sort_indices(const std::int32_t* indices, Key* keys, ScatterPlan plan, int padded, StepBlock* step,
                             int node) {
  wait_for_inputs();
  __shared__ Key items[kBlockSort];
  auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  auto count = static_cast<int>(plan.of.count);
  for (int i = thread; i < padded; i += threads)
    items[i] = i < count ? checked_key(indices, i, plan, step, node) : ~Key{0};
  sort_in_block(items, padded, LessKey{});
  for (int i = thread; i < count; i += threads) keys[i] = items[i];
}

// More keys are sorted by radix_sort().
__global__ void pack_indices(const std::int32_t* indices, Key* keys, ScatterPlan plan, StepBlock* step, int node) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < plan.of.count; i += all_threads())
    keys[i] = checked_key(indices, i, plan, step, node);
}

constexpr int kColumns = 4;  // sums in the registers of a thread

// A warp for each row and stretch of kWarp * kColumns columns.
template <class T>
__global__ void add_at_keys(const T* base, const Key* keys, const T* updates, T* out, IndexedPlan p,
                            std::int64_t stretches) {
  wait_for_inputs();
  std::int64_t warps = p.outer * p.rows * stretches;
  for (std::int64_t warp = thread_index() / kWarp; warp < warps; warp += all_threads() / kWarp) {
    std::int64_t line = quotient(warp, stretches), outer = quotient(line, p.rows), row = line - outer * p.rows;
    std::int64_t first = (warp - line * stretches) * kWarp * kColumns + threadIdx.x % kWarp;
    Wide<T> sums[kColumns];
    for (int c = 0; c < kColumns; ++c) {
      std::int64_t column = first + c * kWarp;
      sums[c] = base != nullptr && column < p.width ? static_cast<Wide<T>>(base[line * p.width + column]) : Wide<T>(0);
    }
    std::int64_t at = 0, end = p.count;  // bounds of the search for the first key of the row
    while (at < end) {
      std::int64_t middle = (at + end) / 2;
      (keys[middle] < key_of(row, 0) ? at = middle + 1 : end = middle);
    }
    for (; at < p.count && keys[at] < key_of(row + 1, 0); ++at) {
      const T* update = updates + (outer * p.count + static_cast<std::uint32_t>(keys[at])) * p.width;
      for (int c = 0; c < kColumns; ++c) {
        std::int64_t column = first + c * kWarp;
        if (column < p.width) sums[c] += static_cast<Wide<T>>(update[column]);
      }
    }
    for (int c = 0; c < kColumns; ++c) {
      std::int64_t column = first + c * kWarp;
      if (column < p.width) out[line * p.width + column] = static_cast<T>(sums[c]);
    }
  }
}

// The sorted keys, in the workspace.
const Key* sort_keys(CudaArgs& a, const ScatterPlan& plan) {
  auto* keys = static_cast<Key*>(a.workspace());
  const auto* indices = a.in<std::int32_t>(1);
  if (plan.of.count == 0) return keys;
  if (is_long(plan)) {
    a.launch(pack_indices, launch_size(plan.of.count), indices, keys, plan, a.step(), a.id());
    return radix_sort<Key>(a, plan.sort, keys);
  }
  int padded = 2;
  while (padded < plan.of.count) padded *= 2;
  a.launch(sort_indices, Extent{}, launch_size(padded / 2).block, 0, indices, keys, plan, padded, a.step(), a.id());
  return keys;
}

// Numbers of two operands; -1: no such operand. scatter_add has base, indices, updates; the gradient of gather has
// gradient, indices, shape of the result.
struct ScatterOperands {
  int base, updates;
};
constexpr ScatterOperands kScatter{0, 2}, kGatherGrad{-1, 0};

template <class T, ScatterOperands operands>
void add_on(CudaArgs& a) {
  const auto& plan = a.local<ScatterPlan>();
  const IndexedPlan& p = plan.of;
  const Key* keys = sort_keys(a, plan);
  std::int64_t stretches = (p.width + kWarp * kColumns - 1) / (kWarp * kColumns);
  a.launch(add_at_keys<T>, launch_size(p.outer * p.rows * stretches * kWarp),
           operands.base < 0 ? nullptr : a.in<T>(operands.base), keys, a.in<T>(operands.updates), a.out<T>(0), p,
           stretches);
}

// Columns of the result that a tile adds up, at one index of the axes before the indexed one.
constexpr std::int64_t kStrip = 64;
std::int64_t strips_of(const IndexedPlan& p) { return std::max<std::int64_t>(1, (p.width + kStrip - 1) / kStrip); }

// Columns [first, end) of the result at `outer`. Halves are summed in the workspace. Returns the first index that is no
// row.
template <class T, ScatterOperands operands>
std::optional<std::int64_t> add_columns(const CpuArgs& a, const IndexedPlan& p, std::int64_t outer, std::int64_t first,
                                        std::int64_t end) {
  const auto* indices = a.in<std::int32_t>(1);
  constexpr bool is_wide = std::is_same_v<T, Wide<T>>;
  const std::int64_t begin = outer * p.rows * p.width + first, size = end - first;
  T* out = a.out<T>(0) + begin;
  auto* sums = is_wide ? a.out<Wide<T>>(0) + begin : static_cast<Wide<T>*>(a.workspace()) + begin;
  // The columns are `lines` pieces of memory, of `length` elements each.
  const std::int64_t lines = size == p.width ? 1 : p.rows, length = size == p.width ? p.rows * p.width : size;
  for (std::int64_t at = 0; at < lines * p.width; at += p.width) {
    if constexpr (operands.base < 0) {
      std::fill_n(sums + at, length, Wide<T>(0));
    } else {
      const T* base = a.in<T>(operands.base) + begin + at;
      if (static_cast<const void*>(sums + at) != base) std::copy_n(base, length, sums + at);
    }
  }
  std::optional<std::int64_t> bad;
  for (std::int64_t k = 0; k < p.count; ++k) {
    std::int64_t row = indices[k];
    if (row < 0 || row >= p.rows) {
      if (!bad) bad = row;
      continue;
    }
    const T* update = a.in<T>(operands.updates) + (outer * p.count + k) * p.width + first;
    Wide<T>* sum = sums + row * p.width;
    for_each_index(size, [=](std::int64_t c) { sum[c] += static_cast<Wide<T>>(update[c]); });
  }
  if constexpr (!is_wide) {
    for (std::int64_t at = 0; at < lines * p.width; at += p.width)
      std::transform(sums + at, sums + at + length, out + at, [](Wide<T> sum) { return static_cast<T>(sum); });
  }
  return bad;
}

// Neighbouring strips are added up together.
template <class T, ScatterOperands operands>
void add_strips(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const IndexedPlan& p = a.local<ScatterPlan>().of;
  const std::int64_t strips = strips_of(p);
  std::optional<std::int64_t> bad;
  std::int64_t size = 0;
  for (std::int64_t tile = first; tile < std::min(end, p.outer * strips); tile += size) {
    const std::int64_t outer = tile / strips, strip = tile - outer * strips;
    size = std::min(strips - strip, end - tile);
    bad = add_columns<T, operands>(a, p, outer, strip * kStrip, std::min(p.width, (strip + size) * kStrip));
  }
  if (bad) fail_step(a, StepError::index, *bad);
}

// i32 is added in its unsigned counterpart: it wraps.
template <class Body>
void for_summed(DType dtype, const Body& body) {
  for_dtype<float, double, half, bfloat16, std::uint32_t>(dtype, body);
}
void expect_summed(InferArgs& a) { expect_dtype<float, double, half, bfloat16, std::uint32_t>(a, 0); }

template <ScatterOperands operands>
void add_cuda(CudaArgs& a) {
  for_summed(a.out_type(0).dtype, [&]<class T>() { add_on<T, operands>(a); });
}
std::int64_t count_strips(const BodyArgs& a) {
  const IndexedPlan& p = a.local<ScatterPlan>().of;
  return std::max<std::int64_t>(1, p.outer * strips_of(p));
}
template <ScatterOperands operands>
void run_strips(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  for_summed(a.out_type(0).dtype, [&]<class T>() { add_strips<T, operands>(a, first, end); });
}
template <ScatterOperands operands>
constexpr Tiles kStrips{count_strips, run_strips<operands>};

Prepared prepare_add(const PrepareArgs& p) {
  auto plan = std::make_shared<ScatterPlan>();
  plan->of = plan_of(p.out(0).shape, p.in(1).shape, p.attrs.as<IndexedAttrs>().axis);
  if (!p.cuda) {
    std::size_t sums = is_half(p.out(0).dtype) ? static_cast<std::size_t>(p.out(0).shape.size()) * sizeof(float) : 0;
    return {plan, sums};
  }
  for_summed(p.out(0).dtype, [&]<class T>() { load_kernel(p, add_at_keys<T>); });
  if (!is_long(*plan)) {
    load_kernel(p, sort_indices);
    return {plan, static_cast<std::size_t>(plan->of.count) * sizeof(Key)};
  }
  load_kernel(p, pack_indices);
  // By the bits of an index; the keys are in the order of places before, and those of equal indices stay so.
  const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(plan->row_behind())));
  plan->sort = {.items = plan->of.count, .first_bit = 32, .end_bit = 32 + std::max(bits, 1)};
  return {plan, prepare_radix_sort<Key>(p, plan->sort)};
}

void infer_scatter_add(InferArgs& a) {
  a.expect_inputs(3);
  expect_summed(a);
  if (a.in(2).dtype != a.in(0).dtype) a.fail("dtypes differ", "cast() one of them to a dtype that holds both");
  Shape wanted = indexed_shape(a, a.in(0).shape, 1);
  if (a.in(2).shape != wanted) a.fail("the updates are not " + to_string(wanted), "give one for each index");
  a.out(a.in(0).dtype, a.in(0).shape);
}

void infer_gathered(InferArgs& a) { a.out(a.in(0).dtype, indexed_shape(a, a.in(0).shape, 1)); }
// Inputs: the gradient of the result, the indices, and what was gathered from (its shape only).
void infer_gather_grad(InferArgs& a) {
  a.expect_inputs(3);
  expect_summed(a);
  a.expect_input(0, a.outputs_of(infer_gathered, {a.in(2), a.in(1)})[0].shape);
  a.out(a.in(0).dtype, a.in(2).shape);
}
Access gather_grad_access(int operand, int) { return operand == 2 ? Access::shape_only : Access::read; }

std::vector<Value> gather_grad_grad(const GradArgs& a) {
  std::vector<Value> result(3);
  result[0] = gather(Arg(a.grads[0], a.where), a.inputs[1], a.attrs.as<IndexedAttrs>().axis);
  return result;
}

std::vector<Value> scatter_add_grad(const GradArgs& a) {
  Value updates;
  if (a.needed[2]) updates = gather(Arg(a.grads[0], a.where), a.inputs[1], a.attrs.as<IndexedAttrs>().axis);
  return {a.grads[0], Value(), updates};
}

constexpr Alias kInPlace[] = {{0, 0}};
const OpDef scatter_add_op{.name = "scatter_add",
                           .infer = infer_scatter_add,
                           .in_place = kInPlace,
                           .prepare = prepare_add,
                           .bodies = {kStrips<kScatter>, add_cuda<kScatter>},
                           .grad = scatter_add_grad};

}  // namespace

const OpDef gather_grad_op{.name = "gather_grad",
                           .infer = infer_gather_grad,
                           .access = gather_grad_access,
                           .prepare = prepare_add,
                           .bodies = {kStrips<kGatherGrad>, add_cuda<kGatherGrad>},
                           .grad = gather_grad_grad};

Value scatter_add(Arg base, Arg indices, Arg updates, int axis, Placement placement) {
  return emit(scatter_add_op, {base, indices, updates}, IndexedAttrs{axis}, placement)[0];
}

std::span<const FileOp> scatter_file_ops() {
  static constexpr FileOp ops[] = {file_op<IndexedAttrs>(scatter_add_op), file_op<IndexedAttrs>(gather_grad_op)};
  return ops;
}

}  // namespace graphsink
