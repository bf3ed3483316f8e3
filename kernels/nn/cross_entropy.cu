// cross_entropy: -log softmax(logits)[target] of each row, or its mean, and its gradient softmax - one_hot. The maximum
// of a row and the logarithm of its sum of exp(x - maximum) are kept apart: added up, logits far from 0 would lose the
// digits of the logarithm.
#include <algorithm>

#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/support/block.h"
#include "kernels/support/dtype.h"
#include "kernels/support/row.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

// The target of rows that do not count.
struct Ignored {
  bool is_set = false;
  std::int64_t target = 0;
  HD bool skips(std::int64_t t) const { return is_set && t == target; }
};
Ignored ignored_by(const CrossEntropyOptions& options) {
  return {options.ignore_index.has_value(), options.ignore_index.value_or(0)};
}

template <class T>
HD T row_loss(T x, T largest, T log_sum) {
  return largest - x + log_sum;
}

// For each row of logits: the largest one, and the logarithm of the sum of exp(logit - largest).
template <class T>
struct Normalizers {
  T *largest, *log_sum;
};

// Where losses go: those of the rows, or their mean and, where it is not null, the number of rows that count.
template <class T>
struct Losses {
  T* rows = nullptr;
  T* mean = nullptr;
  T* count = nullptr;
};

template <class T>
HD void store_mean(const Losses<T>& losses, T sum, T count) {
  *losses.mean = sum / count;
  if (losses.count != nullptr) *losses.count = count;
}

constexpr int kOneBlock = 1024;  // threads of the one block of a small batch

// Each warp takes a row at a time: its loss goes to its place, or into the sum of the block. One block alone writes the
// mean, several write their sums and counts, one after the other, for add_partial_losses.
template <class T, class Target>
__global__ void __launch_bounds__(kOneBlock)
    row_losses(const T* logits, const Target* targets, Losses<T> losses, Normalizers<T> out, T* partial,
               std::int64_t rows, std::int64_t classes, Ignored ignored, StepBlock* step, int node) {
  wait_for_inputs();
  std::int64_t lane = threadIdx.x % kWarp;
  T sum(0), count(0);
  for (std::int64_t row = thread_index() / kWarp; row < rows; row += all_threads() / kWarp) {
    const T* x = logits + row * classes;
    T largest = T(-INFINITY);
    for (std::int64_t c = lane; c < classes; c += kWarp) largest = x[c] > largest ? x[c] : largest;
    largest = warp_max(largest);
    T scaled(0);
    for (std::int64_t c = lane; c < classes; c += kWarp) scaled += math::exp(x[c] - largest);
    T log_sum = math::log(warp_sum(scaled));
    if (lane != 0) continue;
    out.largest[row] = largest;
    out.log_sum[row] = log_sum;
    std::int64_t target = targets[row];
    T loss(0);
    if (!ignored.skips(target)) {
      count += T(1);
      if (target >= 0 && target < classes) {
        loss = row_loss(x[target], largest, log_sum);
      } else {
        fail_step(step, node, StepError::target, target);
      }
    }
    if (losses.rows != nullptr) losses.rows[row] = loss;
    sum += loss;
  }
  if (losses.mean == nullptr) return;
  sum = block_sum(sum);
  __syncthreads();  // before block_sum() uses its memory again
  count = block_sum(count);
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1) {
    store_mean(losses, sum, losses.count == nullptr ? static_cast<T>(rows) : count);
  } else {
    partial[blockIdx.x] = sum;
    partial[gridDim.x + blockIdx.x] = count;
  }
}

template <class T>
__global__ void add_partial_losses(const T* partial, Losses<T> losses, int parts, std::int64_t rows) {
  wait_for_inputs();
  T sum(0), count(0);
  for (int i = static_cast<int>(threadIdx.x); i < parts; i += kThreads) {
    sum += partial[i];
    count += partial[parts + i];
  }
  sum = block_sum(sum);
  __syncthreads();  // before block_sum() uses its memory again
  count = block_sum(count);
  if (threadIdx.x == 0) store_mean(losses, sum, losses.count == nullptr ? static_cast<T>(rows) : count);
}

template <class T>
HD T logit_grad(T logit, T largest, T log_sum, bool is_target, T scale) {
  return (math::exp(logit - largest - log_sum) - (is_target ? T(1) : T(0))) * scale;
}

// The gradients of the losses of the rows, or that of their mean and the number of rows that count.
template <class T>
struct LossGrads {
  const T* rows = nullptr;
  const T* mean = nullptr;
  const T* count = nullptr;
  std::int64_t all = 0;
  HD T at(std::int64_t row) const {
    return rows != nullptr ? rows[row] : *mean / (count != nullptr ? *count : static_cast<T>(all));
  }
};

template <class T, class Target>
__global__ void logit_grads(const T* logits, const Target* targets, Normalizers<const T> in, LossGrads<T> grads, T* out,
                            std::int64_t rows, std::int64_t classes, Ignored ignored) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < rows * classes; i += all_threads()) {
    std::int64_t row = i / classes, target = targets[row];
    out[i] = ignored.skips(target)
                 ? T(0)
                 : logit_grad(logits[i], in.largest[row], in.log_sum[row], target == i % classes, grads.at(row));
  }
}

// Up to so many elements one block does a batch in one launch; beyond that a warp per row, and a launch to add up. One
// block took 32 us for 512 rows of 76 classes on an H100, where a launch takes 1 to 3.
constexpr std::int64_t kSmallBatch = 8192;  // elements
std::int64_t blocks_for(const Shape& logits) {
  std::int64_t warps = kThreads / kWarp;
  return logits.size() <= kSmallBatch ? 1 : std::min((logits[0] + warps - 1) / warps, kMaxBlocks);
}

// Outputs: the losses, then, for the gradient, the maximum and the logarithm of the sum of each row, and the number of
// rows that count where that is not all of them.
template <class T>
Losses<T> losses_of(const BodyArgs& a) {
  if (a.attrs<CrossEntropyOptions>().per_row) return {.rows = a.out<T>(0)};
  return {.mean = a.out<T>(0), .count = a.outputs() > 3 ? a.out<T>(3) : nullptr};
}
// Inputs: logits, targets, then the outputs for the gradient, and the gradient of the losses at the end.
template <class T>
LossGrads<T> loss_grads_of(const BodyArgs& a) {
  const T* g = a.in<T>(a.inputs() - 1);
  if (a.attrs<CrossEntropyOptions>().per_row) return {.rows = g};
  return {.mean = g, .count = a.inputs() > 5 ? a.in<T>(4) : nullptr, .all = a.in_type(0).shape[0]};
}

template <class T, class Target>
void cross_entropy_on(CudaArgs& a) {
  const Shape& logits = a.in_type(0).shape;
  std::int64_t blocks = blocks_for(logits);
  T* partial = static_cast<T*>(a.workspace());
  Losses<T> losses = losses_of<T>(a);
  std::int64_t threads = blocks > 1 ? kThreads : std::clamp<std::int64_t>(logits[0], 1, kOneBlock / kWarp) * kWarp;
  a.launch(row_losses<T, Target>, Extent{static_cast<unsigned>(blocks)}, Extent{static_cast<unsigned>(threads)}, 0,
           a.in<T>(0), a.in<Target>(1), losses, Normalizers<T>{a.out<T>(1), a.out<T>(2)}, partial, logits[0], logits[1],
           ignored_by(a.attrs<CrossEntropyOptions>()), a.step(), a.id());
  if (blocks == 1 || losses.mean == nullptr) return;
  a.launch(add_partial_losses<T>, Extent{}, Extent{static_cast<unsigned>(kThreads)}, 0, partial, losses,
           static_cast<int>(blocks), logits[0]);
}

// The mean is a sum over all rows in their order, so only the losses of rows have several tiles.
std::int64_t count_forward_tiles(const BodyArgs& a) {
  const Shape& logits = a.in_type(0).shape;
  return a.attrs<CrossEntropyOptions>().per_row ? count_row_tiles(logits[0], logits[1]) : 1;
}

template <class T, class Target>
void cross_entropy_rows(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  std::int64_t rows = a.in_type(0).shape[0], classes = a.in_type(0).shape[1], counted = 0;
  const auto* targets = a.in<Target>(1);
  Losses<T> losses = losses_of<T>(a);
  Ignored ignored = ignored_by(a.attrs<CrossEntropyOptions>());
  auto is_bad = [=](std::int64_t target) { return !ignored.skips(target) && (target < 0 || target >= classes); };
  double sum = 0;
  bool any_is_bad = false;
  for (std::int64_t row = first; row < end; ++row) {
    const T* x = a.in<T>(0) + row * classes;
    T largest = chained_max(classes, x);
    double scaled = exponential_sum(classes, x, largest);
    double log_sum = math::log(scaled), loss = 0;
    a.out<T>(1)[row] = largest;
    a.out<T>(2)[row] = static_cast<T>(log_sum);
    std::int64_t target = targets[row];
    if (!ignored.skips(target)) ++counted;
    if (is_bad(target)) {
      any_is_bad = true;
    } else if (!ignored.skips(target)) {
      loss = row_loss(double{x[target]}, double{largest}, log_sum);
    }
    if (losses.rows != nullptr) losses.rows[row] = static_cast<T>(loss);
    sum += loss;
  }
  if (losses.mean != nullptr) *losses.mean = static_cast<T>(sum / static_cast<double>(counted));
  if (losses.count != nullptr) *losses.count = static_cast<T>(counted);
  // The first of all, whichever tiles fail first.
  if (any_is_bad) fail_step(a, StepError::target, *std::find_if(targets, targets + rows, is_bad));
}

template <class T, class Target>
void cross_entropy_grad_on(CudaArgs& a) {
  const Shape& logits = a.in_type(0).shape;
  a.launch(logit_grads<T, Target>, launch_size(logits.size()), a.in<T>(0), a.in<Target>(1),
           Normalizers<const T>{a.in<T>(2), a.in<T>(3)}, loss_grads_of<T>(a), a.out<T>(0), logits[0], logits[1],
           ignored_by(a.attrs<CrossEntropyOptions>()));
}

template <class T, class Target>
void cross_entropy_grad_rows(const CpuArgs& a, const RowRange& range) {
  std::int64_t classes = a.in_type(0).shape[1];
  LossGrads<T> grads = loss_grads_of<T>(a);
  Ignored ignored = ignored_by(a.attrs<CrossEntropyOptions>());
  for (std::int64_t row = range.first; row < range.end; ++row) {
    const T* x = a.in<T>(0) + row * classes;
    T* out = a.out<T>(0) + row * classes;
    T largest = a.in<T>(2)[row], log_sum = a.in<T>(3)[row];
    std::int64_t target = a.in<Target>(1)[row];
    if (ignored.skips(target)) {
      std::fill_n(out, classes, T(0));
      continue;
    }
    T scale = grads.at(row);
    bool is_class = target >= 0 && target < classes;
    T of_target = is_class ? logit_grad(x[target], largest, log_sum, true, scale) : T(0);  // `out` may be `x`
    for_each_index(classes, [=](std::int64_t c) { out[c] = logit_grad(x[c], largest, log_sum, false, scale); });
    if (is_class) out[target] = of_target;
  }
}

// f.operator()<T, Target>() for the dtypes of logits and targets.
template <class Body>
void for_operands(const TensorType& logits, const TensorType& targets, const Body& body) {
  for_dtype<float, double>(logits.dtype, [&]<class T>() {
    for_dtype<std::int32_t, std::int64_t>(targets.dtype,
                                          [&]<class Target>() { body.template operator()<T, Target>(); });
  });
}

void forward(CudaArgs& a) {
  for_operands(a.in_type(0), a.in_type(1), [&]<class T, class Target>() { cross_entropy_on<T, Target>(a); });
}
void run_forward_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const Shape& logits = a.in_type(0).shape;
  RowRange range(first, end, logits[0], logits[1]);
  if (!a.attrs<CrossEntropyOptions>().per_row) range.end = logits[0];  // one tile
  for_operands(a.in_type(0), a.in_type(1),
               [&]<class T, class Target>() { cross_entropy_rows<T, Target>(a, range.first, range.end); });
}
constexpr Tiles kForwardTiles{count_forward_tiles, run_forward_tiles};
void backward(CudaArgs& a) {
  for_operands(a.in_type(0), a.in_type(1), [&]<class T, class Target>() { cross_entropy_grad_on<T, Target>(a); });
}
std::int64_t count_backward_tiles(const BodyArgs& a) {
  return count_row_tiles(a.in_type(0).shape[0], a.in_type(0).shape[1]);
}
void run_backward_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const Shape& logits = a.in_type(0).shape;
  for_operands(a.in_type(0), a.in_type(1), [&]<class T, class Target>() {
    cross_entropy_grad_rows<T, Target>(a, {first, end, logits[0], logits[1]});
  });
}
constexpr Tiles kBackwardTiles{count_backward_tiles, run_backward_tiles};

void infer_cross_entropy(InferArgs& a) {
  a.expect_inputs(2);
  const auto& options = a.attrs<CrossEntropyOptions>();
  const TensorType &logits = a.in(0), &targets = a.in(1);
  if (is_half(logits.dtype)) a.fail("takes logits of f32, f64", "cast() them: their exponentials need the range");
  if (!is_float(logits.dtype) || logits.shape.rank() != 2)
    a.fail("the logits are not a matrix of floats", "reshape() them to [rows, classes]");
  bool are_indices = targets.dtype == DType::i32 || targets.dtype == DType::i64;
  if (!are_indices || targets.shape != Shape{logits.shape[0]})
    a.fail("the targets are not one i32 or i64 for each row of logits", "reshape() or cast() them");
  Shape rows{logits.shape[0]};
  a.out(logits.dtype, options.per_row ? rows : Shape{});
  a.out(logits.dtype, rows);
  a.out(logits.dtype, rows);
  if (options.ignore_index && !options.per_row) a.out(logits.dtype, {});
}

Prepared prepare_cross_entropy(const PrepareArgs& p) {
  for_operands(p.in(0), p.in(1),
               [&]<class T, class Target>() { load_kernels<row_losses<T, Target>, add_partial_losses<T>>(p); });
  std::int64_t blocks = blocks_for(p.in(0).shape);
  return {nullptr, p.cuda && blocks > 1 ? static_cast<std::size_t>(2 * blocks) * size_of(p.in(0).dtype) : 0};
}

// Inputs: logits and targets, the outputs of the loss but the first, and the gradient of the first.
void infer_cross_entropy_grad(InferArgs& a) {
  const std::vector<TensorType> made = a.outputs_of(infer_cross_entropy, {a.in(0), a.in(1)});
  const int outputs = static_cast<int>(made.size());
  a.expect_inputs(2 + outputs);
  for (int i = 1; i < outputs; ++i) a.expect_input(1 + i, made[static_cast<std::size_t>(i)]);
  a.expect_input(1 + outputs, made[0]);
  a.out(a.in(0).dtype, a.in(0).shape);
}

Prepared prepare_cross_entropy_grad(const PrepareArgs& p) {
  for_operands(p.in(0), p.in(1), [&]<class T, class Target>() { load_kernel(p, logit_grads<T, Target>); });
  return {};
}

// The gradient from logits, targets and g alone, by ops that have gradients.
std::vector<Value> grad_formula(std::span<const Value> in, const Attrs& attrs) {
  const auto& options = attrs.as<CrossEntropyOptions>();
  const Value &logits = in[0], &g = in.back(), targets = unsqueeze(in[1], 1);
  const DType dtype = logits.dtype();
  const Value is_target = equal(targets, arange(logits, 1, targets.dtype()));
  auto dx = [&](const Value& counted_logits) {
    const Value residual = softmax(counted_logits, 1) - cast(is_target, dtype);
    if (options.per_row) return residual * unsqueeze(g, 1);
    const Value rows = in.size() > 5 ? stop_gradient(in[4]) : cast(dim(logits, 0), dtype);
    return residual * (g / maximum(rows, 1.0));
  };
  if (!options.ignore_index) return {dx(logits)};
  // Targets that are no class are ignored, or the step has failed.
  const Value is_class = any(is_target, {1}, {.keep_axes = true});
  const Value counts = logical_and(is_class, not_equal(targets, static_cast<double>(*options.ignore_index)));
  return {where(counts, dx(where(counts, logits, 0.0)), 0.0)};
}

constexpr Alias kInPlace[] = {{0, 0}};
const OpDef cross_entropy_grad_op{.name = "cross_entropy_grad",
                                  .infer = infer_cross_entropy_grad,
                                  .in_place = kInPlace,
                                  .traits = {.kernels_wait = true},
                                  .prepare = prepare_cross_entropy_grad,
                                  .bodies = {kBackwardTiles, backward},
                                  .grad = grad_formula};

std::vector<Value> cross_entropy_grad(const GradArgs& a) {
  std::vector<Arg> operands{Arg(a.inputs[0], a.where), a.inputs[1]};
  operands.insert(operands.end(), a.outputs.begin() + 1, a.outputs.end());
  operands.emplace_back(a.grads[0]);
  return {emit(cross_entropy_grad_op, operands, a.attrs)[0], Value()};
}

const OpDef cross_entropy_op{.name = "cross_entropy",
                             .infer = infer_cross_entropy,
                             .traits = {.kernels_wait = true},
                             .prepare = prepare_cross_entropy,
                             .bodies = {kForwardTiles, forward},
                             .grad = cross_entropy_grad};

}  // namespace

Value cross_entropy(Arg logits, Arg targets, CrossEntropyOptions options, Placement placement) {
  return emit(cross_entropy_op, {logits, targets}, options, placement)[0];
}

std::span<const FileOp> cross_entropy_file_ops() {
  static constexpr FileOp ops[] = {file_op<CrossEntropyOptions>(cross_entropy_op),
                                   file_op<CrossEntropyOptions>(cross_entropy_grad_op)};
  return ops;
}

}  // namespace graphsink
