// gather and scatter_add: elements of an axis by index, and sums at indices, which add up in the order of the indices.
#include "graphsink/ops.h"
#include "kernels/block.h"
#include "kernels/dtype.h"
#include "kernels/words.h"

namespace graphsink {
namespace {

// The tensor with the axis is [outer, rows, width], the one with an element for each index [outer, count, width].
struct IndexedPlan {
  std::int64_t outer = 1, rows = 0, count = 0, width = 1;
  int word = 1;  // bytes; of width, for gather
};

template <class T>
__global__ void gather_words(const T* x, const std::int32_t* indices, T* out, IndexedPlan p, StepBlock* step,
                             int node) {
  wait_for_inputs();
  std::int64_t size = p.outer * p.count * p.width;
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) {
    std::int64_t item = quotient(i, p.width), outer = quotient(item, p.count);
    std::int64_t row = indices[item - outer * p.count];
    bool is_row = row >= 0 && row < p.rows;
    out[i] = is_row ? x[(outer * p.rows + row) * p.width + (i - item * p.width)] : T{};
    if (!is_row) fail_step(step, node);
  }
}

constexpr int kColumns = 4;  // sums in the registers of a thread

// A warp for each row and stretch of kWarp * kColumns columns looks at all indices, a warpful at a time. The first warp
// also looks for bad ones.
template <class T>
__global__ void add_at_indices(const T* base, const std::int32_t* indices, const T* updates, T* out, IndexedPlan p,
                               std::int64_t stretches, StepBlock* step, int node) {
  wait_for_inputs();
  int lane = static_cast<int>(threadIdx.x) % kWarp;
  std::int64_t warp = thread_index() / kWarp;
  if (warp == 0) {
    for (std::int64_t j = lane; j < p.count; j += kWarp)
      if (indices[j] < 0 || indices[j] >= p.rows) fail_step(step, node);
  }
  std::int64_t warps = p.outer * p.rows * stretches;
  for (; warp < warps; warp += all_threads() / kWarp) {
    std::int64_t line = quotient(warp, stretches), outer = quotient(line, p.rows), row = line - outer * p.rows;
    std::int64_t first = (warp - line * stretches) * kWarp * kColumns + lane;
    T sums[kColumns];
    for (int c = 0; c < kColumns; ++c) {
      std::int64_t column = first + c * kWarp;
      sums[c] = base != nullptr && column < p.width ? base[line * p.width + column] : T(0);
    }
    for (std::int64_t begin = 0; begin < p.count; begin += kWarp) {
      std::int64_t mine = begin + lane;
      unsigned hits = __ballot_sync(kAllLanes, mine < p.count && indices[mine] == row);
      for (; hits != 0; hits &= hits - 1) {
        const T* update = updates + (outer * p.count + begin + __ffs(static_cast<int>(hits)) - 1) * p.width;
        for (int c = 0; c < kColumns; ++c) {
          std::int64_t column = first + c * kWarp;
          if (column < p.width) sums[c] += update[column];
        }
      }
    }
    for (int c = 0; c < kColumns; ++c) {
      std::int64_t column = first + c * kWarp;
      if (column < p.width) out[line * p.width + column] = sums[c];
    }
  }
}

IndexedPlan plan_of(const Shape& x, const Shape& indices, int axis) {
  IndexedPlan p;
  int d = axis < 0 ? axis + x.rank() : axis;
  for (int i = 0; i < d; ++i) p.outer *= x[i];
  p.rows = x[d];
  p.count = indices.size();
  for (int i = d + 1; i < x.rank(); ++i) p.width *= x[i];
  return p;
}

struct IndexedAttrs {
  int axis;
};

// The shape of x with that of the indices in place of the axis.
Shape indexed_shape(const InferArgs& a, const Shape& x, const TensorType& indices) {
  int d = axis_from_front(a, a.attrs<IndexedAttrs>().axis, x.rank());
  if (indices.dtype != DType::i32) a.fail("the indices are not i32", "cast() them");
  if (x.rank() - 1 + indices.shape.rank() > Shape::kMaxRank) a.fail("too many axes", "reshape() the indices");
  Shape out;
  for (int i = 0; i < d; ++i) out.push_back(x[i]);
  for (std::int64_t dim : indices.shape.dims()) out.push_back(dim);
  for (int i = d + 1; i < x.rank(); ++i) out.push_back(x[i]);
  return out;
}

void infer_gather(InferArgs& a) {
  a.expect_inputs(2);
  a.out(a.in(0).dtype, indexed_shape(a, a.in(0).shape, a.in(1)));
}

Prepared prepare_gather(const PrepareArgs& p) {
  IndexedPlan plan = plan_of(p.in(0).shape, p.in(1).shape, p.attrs.as<IndexedAttrs>().axis);
  std::int64_t bytes = plan.width * static_cast<std::int64_t>(size_of(p.in(0).dtype));
  plan.word = word_size({bytes});
  plan.width = bytes / plan.word;
  with_word(plan.word, [&]<class T>(T) { load_kernel(p, gather_words<T>); });
  return {std::make_shared<IndexedPlan>(plan)};
}

void gather_cuda(CudaArgs& a) {
  const auto& p = a.local<IndexedPlan>();
  std::int64_t size = p.outer * p.count * p.width;
  if (size == 0) return;
  LaunchSize launch = launch_size(size);
  with_word(p.word, [&]<class T>(T) {
    a.launch(gather_words<T>, launch.grid, launch.block, 0, a.in<T>(0), a.in<std::int32_t>(1), a.out<T>(0), p, a.step(),
             a.node().id);
  });
}

void gather_cpu(const CpuArgs& a) {
  const auto& p = a.local<IndexedPlan>();
  const auto* indices = a.in<std::int32_t>(1);
  auto bytes = static_cast<std::size_t>(p.width * p.word);
  if (bytes == 0) return;
  bool is_bad = false;
  for (std::int64_t i = 0; i < p.outer * p.count; ++i) {
    std::int64_t row = indices[i % p.count];
    std::byte* out = a.out<std::byte>(0) + static_cast<std::size_t>(i) * bytes;
    if (row >= 0 && row < p.rows) {
      std::memcpy(out, a.in<std::byte>(0) + static_cast<std::size_t>(i / p.count * p.rows + row) * bytes, bytes);
    } else {
      std::memset(out, 0, bytes);
      is_bad = true;
    }
  }
  if (is_bad) fail_step(a, "an index outside the axis");
}

// Of scatter_add: base, indices, updates; of the gradient of gather: gradient, indices, shape of the result.
struct ScatterOperands {
  int base, updates;
};
constexpr ScatterOperands kScatter{0, 2}, kGatherGrad{-1, 0};

template <class T, ScatterOperands operands>
void add_on(CudaArgs& a) {
  const auto& p = a.local<IndexedPlan>();
  std::int64_t stretches = (p.width + kWarp * kColumns - 1) / (kWarp * kColumns);
  LaunchSize launch = launch_size(std::max<std::int64_t>(1, p.outer * p.rows * stretches) * kWarp);
  a.launch(add_at_indices<T>, launch.grid, launch.block, 0, operands.base < 0 ? nullptr : a.in<T>(operands.base),
           a.in<std::int32_t>(1), a.in<T>(operands.updates), a.out<T>(0), p, stretches, a.step(), a.node().id);
}

template <class T, ScatterOperands operands>
void add_on(const CpuArgs& a) {
  const auto& p = a.local<IndexedPlan>();
  const auto* indices = a.in<std::int32_t>(1);
  std::int64_t size = p.outer * p.rows * p.width;
  T* out = a.out<T>(0);
  if constexpr (operands.base < 0) {
    std::fill_n(out, size, T(0));
  } else {
    if (out != a.in<T>(operands.base)) std::copy_n(a.in<T>(operands.base), size, out);
  }
  bool is_bad = false;
  for (std::int64_t i = 0; i < p.outer * p.count; ++i) {
    std::int64_t row = indices[i % p.count];
    bool is_row = row >= 0 && row < p.rows;
    is_bad = is_bad || !is_row;
    if (!is_row) continue;
    const T* update = a.in<T>(operands.updates) + i * p.width;
    T* sum = out + (i / p.count * p.rows + row) * p.width;
    for_each_index(p.width, [=](std::int64_t c) { sum[c] += update[c]; });
  }
  if (is_bad) fail_step(a, "an index outside the axis");
}

// i32 is added in its unsigned counterpart: it wraps.
template <class Args, ScatterOperands operands>
void add_any(Args& a) {
  switch (a.out_type(0).dtype) {
    case DType::f32:
      return add_on<float, operands>(a);
    case DType::f64:
      return add_on<double, operands>(a);
    default:
      return add_on<std::uint32_t, operands>(a);
  }
}

Prepared prepare_add(const PrepareArgs& p) {
  load_kernels<add_at_indices<float>, add_at_indices<double>, add_at_indices<std::uint32_t>>(p);
  return {std::make_shared<IndexedPlan>(plan_of(p.out(0).shape, p.in(1).shape, p.attrs.as<IndexedAttrs>().axis))};
}

void infer_scatter_add(InferArgs& a) {
  a.expect_inputs(3);
  expect_dtype<float, double, std::int32_t>(a, 0);
  if (a.in(2).dtype != a.in(0).dtype) a.fail("dtypes differ", "cast() the updates");
  Shape wanted = indexed_shape(a, a.in(0).shape, a.in(1));
  if (a.in(2).shape != wanted) a.fail("the updates are not " + to_string(wanted), "give one for each index");
  a.out(a.in(0).dtype, a.in(0).shape);
}

// Inputs: gradient, indices, the operand of gather (shape only).
void infer_gather_grad(InferArgs& a) {
  expect_dtype<float, double, std::int32_t>(a, 0);
  a.out(a.in(0).dtype, a.in(2).shape);
}
Access gather_grad_access(int operand, int) { return operand == 2 ? Access::shape_only : Access::read; }

std::vector<Value> gather_grad_grad(const GradArgs& a) {
  std::vector<Value> result(3);
  result[0] = gather(Arg(a.grads[0], a.where), a.inputs[1], a.attrs.as<IndexedAttrs>().axis);
  return result;
}

constexpr CudaBody kGatherGradCuda[] = {{0, add_any<CudaArgs, kGatherGrad>}};
const OpDef gather_grad_op{.name = "gather_grad",
                           .infer = infer_gather_grad,
                           .access = gather_grad_access,
                           .prepare = prepare_add,
                           .cuda = kGatherGradCuda,
                           .cpu = add_any<const CpuArgs, kGatherGrad>,
                           .grad = gather_grad_grad};

std::vector<Value> gather_grad(const GradArgs& a) {
  return {emit(gather_grad_op, {Arg(a.grads[0], a.where), a.inputs[1], a.inputs[0]}, a.attrs)[0], Value()};
}

constexpr CudaBody kGatherCuda[] = {{0, gather_cuda}};
const OpDef gather_op{.name = "gather",
                      .infer = infer_gather,
                      .prepare = prepare_gather,
                      .cuda = kGatherCuda,
                      .cpu = gather_cpu,
                      .grad = gather_grad};

std::vector<Value> scatter_add_grad(const GradArgs& a) {
  Value updates;
  if (a.needed[2]) updates = gather(Arg(a.grads[0], a.where), a.inputs[1], a.attrs.as<IndexedAttrs>().axis);
  return {a.grads[0], Value(), updates};
}

constexpr CudaBody kScatterCuda[] = {{0, add_any<CudaArgs, kScatter>}};
constexpr Alias kInPlace[] = {{0, 0}};
const OpDef scatter_add_op{.name = "scatter_add",
                           .infer = infer_scatter_add,
                           .in_place = kInPlace,
                           .prepare = prepare_add,
                           .cuda = kScatterCuda,
                           .cpu = add_any<const CpuArgs, kScatter>,
                           .grad = scatter_add_grad};

}  // namespace

Value gather(Arg x, Arg indices, int axis, Label label) {
  return emit(gather_op, {x, indices}, IndexedAttrs{axis}, label)[0];
}
Value scatter_add(Arg base, Arg indices, Arg updates, int axis, Label label) {
  return emit(scatter_add_op, {base, indices, updates}, IndexedAttrs{axis}, label)[0];
}

}  // namespace graphsink
