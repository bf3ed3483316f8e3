// cross_entropy: mean over rows of -log softmax(logits)[target], and its gradient (softmax - one_hot) / rows. The
// maximum of a row and the logarithm of its sum of exp(x - maximum) are kept apart: added up, logits far from 0 would
// lose the digits of the logarithm.
#include <optional>

#include "graphsink/ops.h"
#include "kernels/block.h"

namespace graphsink {
namespace {

// -log softmax(x), where `largest` and `log_sum` are those of the row.
template <class T>
HD T row_loss(T x, T largest, T log_sum) {
  return largest - x + log_sum;
}

// Of each row.
template <class T>
struct Normalizers {
  T *largest, *log_sum;
};

// Each warp takes a row at a time: its loss goes into the sum of the block. One block alone writes the mean, several
// write their sums, for add_partial_losses.
template <class T>
__global__ void row_losses(const T* logits, const std::int32_t* targets, T* loss, Normalizers<T> out, T* partial,
                           std::int64_t rows, std::int64_t classes, StepBlock* step, int node) {
  wait_for_inputs();
  std::int64_t lane = threadIdx.x % kWarp;
  T sum(0);
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
    if (target >= 0 && target < classes) {
      sum += row_loss(x[target], largest, log_sum);
    } else {
      fail_step(step, node, StepError::target, target);
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1) {
    *loss = sum / static_cast<T>(rows);
  } else {
    partial[blockIdx.x] = sum;
  }
}

template <class T>
__global__ void add_partial_losses(const T* partial, T* loss, int parts, std::int64_t rows) {
  wait_for_inputs();
  T sum(0);
  for (int i = static_cast<int>(threadIdx.x); i < parts; i += kThreads) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *loss = sum / static_cast<T>(rows);
}

template <class T>
HD T logit_grad(T logit, T largest, T log_sum, bool is_target, T scale) {
  return (math::exp(logit - largest - log_sum) - (is_target ? T(1) : T(0))) * scale;
}

template <class T>
__global__ void logit_grads(const T* logits, const std::int32_t* targets, Normalizers<const T> in, const T* grad,
                            T* out, std::int64_t rows, std::int64_t classes) {
  wait_for_inputs();
  T scale = *grad / static_cast<T>(rows);
  for (std::int64_t i = thread_index(); i < rows * classes; i += all_threads()) {
    std::int64_t row = i / classes;
    out[i] = logit_grad(logits[i], in.largest[row], in.log_sum[row], targets[row] == i % classes, scale);
  }
}

// One block of 32 warps does a small batch in one launch; beyond that a warp per row, and a launch to add up.
constexpr std::int64_t kOneBlock = 1024;
constexpr std::int64_t kSmallBatch = 65536;  // elements
std::int64_t blocks_for(const Shape& logits) {
  std::int64_t warps = kThreads / kWarp;
  return logits.size() <= kSmallBatch ? 1 : std::min((logits[0] + warps - 1) / warps, kMaxBlocks);
}

template <class T>
void cross_entropy_on(CudaArgs& a) {
  const Shape& logits = a.in_type(0).shape;
  std::int64_t blocks = blocks_for(logits);
  T* partial = static_cast<T*>(a.workspace());
  std::int64_t threads = blocks > 1 ? kThreads : std::clamp<std::int64_t>(logits[0], 1, kOneBlock / kWarp) * kWarp;
  a.launch(row_losses<T>, Extent{static_cast<unsigned>(blocks)}, Extent{static_cast<unsigned>(threads)}, 0, a.in<T>(0),
           a.in<std::int32_t>(1), a.out<T>(0), Normalizers<T>{a.out<T>(1), a.out<T>(2)}, partial, logits[0], logits[1],
           a.step(), a.node().id);
  if (blocks == 1) return;
  a.launch(add_partial_losses<T>, Extent{}, Extent{static_cast<unsigned>(kThreads)}, 0, partial, a.out<T>(0),
           static_cast<int>(blocks), logits[0]);
}

template <class T>
void cross_entropy_on(const CpuArgs& a) {
  std::int64_t rows = a.in_type(0).shape[0], classes = a.in_type(0).shape[1];
  const auto* targets = a.in<std::int32_t>(1);
  double sum = 0;
  std::optional<std::int64_t> bad;
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* x = a.in<T>(0) + row * classes;
    T largest = T(-INFINITY);
    for (std::int64_t c = 0; c < classes; ++c) largest = x[c] > largest ? x[c] : largest;
    double scaled = 0;
    for (std::int64_t c = 0; c < classes; ++c) scaled += math::exp(x[c] - largest);
    double log_sum = math::log(scaled);
    a.out<T>(1)[row] = largest;
    a.out<T>(2)[row] = static_cast<T>(log_sum);
    bool is_class = targets[row] >= 0 && targets[row] < classes;
    if (is_class) sum += row_loss(double{x[targets[row]]}, double{largest}, log_sum);
    if (!is_class && !bad) bad = targets[row];
  }
  *a.out<T>(0) = static_cast<T>(sum / static_cast<double>(rows));
  if (bad) fail_step(a, StepError::target, *bad);
}

template <class T>
void cross_entropy_grad_on(CudaArgs& a) {
  const Shape& logits = a.in_type(0).shape;
  LaunchSize launch = launch_size(logits.size());
  a.launch(logit_grads<T>, launch.grid, launch.block, 0, a.in<T>(0), a.in<std::int32_t>(1),
           Normalizers<const T>{a.in<T>(2), a.in<T>(3)}, a.in<T>(4), a.out<T>(0), logits[0], logits[1]);
}

template <class T>
void cross_entropy_grad_on(const CpuArgs& a) {
  std::int64_t rows = a.in_type(0).shape[0], classes = a.in_type(0).shape[1];
  T scale = *a.in<T>(4) / static_cast<T>(rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* x = a.in<T>(0) + row * classes;
    T* out = a.out<T>(0) + row * classes;
    T largest = a.in<T>(2)[row], log_sum = a.in<T>(3)[row];
    std::int64_t target = a.in<std::int32_t>(1)[row];
    for (std::int64_t c = 0; c < classes; ++c) out[c] = logit_grad(x[c], largest, log_sum, c == target, scale);
  }
}

template <class Args>
void forward(Args& a) {
  a.in_type(0).dtype == DType::f32 ? cross_entropy_on<float>(a) : cross_entropy_on<double>(a);
}
template <class Args>
void backward(Args& a) {
  a.in_type(0).dtype == DType::f32 ? cross_entropy_grad_on<float>(a) : cross_entropy_grad_on<double>(a);
}

// Outputs: the loss, and for the gradient the maximum and the logarithm of the sum of each row.
void infer_cross_entropy(InferArgs& a) {
  a.expect_inputs(2);
  const TensorType &logits = a.in(0), &targets = a.in(1);
  if (is_half(logits.dtype)) a.fail("takes logits of f32, f64", "cast() them: their exponentials need the range");
  if (!is_float(logits.dtype) || logits.shape.rank() != 2)
    a.fail("the logits are not a matrix of floats", "reshape() them to [rows, classes]");
  if (targets.dtype != DType::i32 || targets.shape != Shape{logits.shape[0]})
    a.fail("the targets are not one i32 for each row of logits", "reshape() or cast() them");
  a.out(logits.dtype, {});
  a.out(logits.dtype, {logits.shape[0]});
  a.out(logits.dtype, {logits.shape[0]});
}

Prepared prepare_cross_entropy(const PrepareArgs& p) {
  load_kernels<row_losses<float>, row_losses<double>, add_partial_losses<float>, add_partial_losses<double>>(p);
  std::int64_t blocks = blocks_for(p.in(0).shape);
  return {nullptr, p.cuda && blocks > 1 ? static_cast<std::size_t>(blocks) * size_of(p.in(0).dtype) : 0};
}

// Inputs: logits, targets, maxima, logarithms of sums, gradient of the loss.
void infer_cross_entropy_grad(InferArgs& a) { a.out(a.in(0).dtype, a.in(0).shape); }

constexpr Alias kInPlace[] = {{0, 0}};
constexpr CudaBody kGradCuda[] = {{0, backward<CudaArgs>}};
const OpDef cross_entropy_grad_op{.name = "cross_entropy_grad",
                                  .infer = infer_cross_entropy_grad,
                                  .in_place = kInPlace,
                                  .prepare = load_kernels<logit_grads<float>, logit_grads<double>>,
                                  .cuda = kGradCuda,
                                  .cpu = backward<const CpuArgs>};

std::vector<Value> cross_entropy_grad(const GradArgs& a) {
  Arg logits(a.inputs[0], a.where);
  return {emit(cross_entropy_grad_op, {logits, a.inputs[1], a.outputs[1], a.outputs[2], a.grads[0]})[0], Value()};
}

constexpr CudaBody kCuda[] = {{0, forward<CudaArgs>}};
const OpDef cross_entropy_op{.name = "cross_entropy",
                             .infer = infer_cross_entropy,
                             .prepare = prepare_cross_entropy,
                             .cuda = kCuda,
                             .cpu = forward<const CpuArgs>,
                             .grad = cross_entropy_grad};

}  // namespace

Value cross_entropy(Arg logits, Arg targets, Label label) {
  return emit(cross_entropy_op, {logits, targets}, {}, label)[0];
}

}  // namespace graphsink
