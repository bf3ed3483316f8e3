// layer_norm (Ba, Kiros & Hinton 2016) and rms_norm (Zhang & Sennrich 2019) along the last axis. With
// n = (x - mean) * rstd, where rms_norm has no mean, the output is n * gain + bias. The gradients from that of the
// output, g: of gain sum(g * n), of bias sum(g), over all rows; of x, with h = g * gain, rstd * (h - mean(h) - n *
// mean(h * n)), again without mean(h) in rms_norm.
#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/support/dtype.h"
#include "kernels/support/row.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

struct NormAttrs {
  double epsilon;
  bool is_centered;  // layer_norm
  static auto fields(auto& s) { return std::tie("epsilon", s.epsilon, "is_centered", s.is_centered); }
};

// --- the kernels: mean and bias are null in rms_norm

template <class T, class Group>
__global__ void norm_rows(const T* x, const T* gain, const T* bias, T* out, T* mean, T* rstd, std::int64_t rows,
                          std::int64_t width, T epsilon) {
  wait_for_inputs();
  T count = static_cast<T>(width);
  for (std::int64_t row = Group::first_row(); row < rows; row += Group::stride()) {
    const T* from = x + row * width;
    T center(0);
    if (mean != nullptr) {
      T sum(0);
      for (std::int64_t k = Group::lane(); k < width; k += Group::kSize) sum += from[k];
      center = Group::sum(sum) / count;
    }
    T squares(0);
    for (std::int64_t k = Group::lane(); k < width; k += Group::kSize)
      squares += (from[k] - center) * (from[k] - center);
    T scale = T(1) / math::sqrt(Group::sum(squares) / count + epsilon);
    if (Group::lane() == 0) {
      rstd[row] = scale;
      if (mean != nullptr) mean[row] = center;
    }
    for (std::int64_t k = Group::lane(); k < width; k += Group::kSize) {
      T y = (from[k] - center) * scale * gain[k];
      out[row * width + k] = bias == nullptr ? y : y + bias[k];
    }
  }
}

template <class T, class Group>
__global__ void norm_grad_rows(const T* x, const T* gain, const T* mean, const T* rstd, const T* g, T* out,
                               std::int64_t rows, std::int64_t width) {
  wait_for_inputs();
  T count = static_cast<T>(width);
  for (std::int64_t row = Group::first_row(); row < rows; row += Group::stride()) {
    const T *from = x + row * width, *grad = g + row * width;
    T center = mean == nullptr ? T(0) : mean[row], scale = rstd[row];
    T sum(0), product(0);
    for (std::int64_t k = Group::lane(); k < width; k += Group::kSize) {
      T h = grad[k] * gain[k];
      sum += h;
      product += h * ((from[k] - center) * scale);
    }
    product = Group::sum(product) / count;
    sum = mean == nullptr ? T(0) : Group::sum(sum) / count;
    for (std::int64_t k = Group::lane(); k < width; k += Group::kSize)
      out[row * width + k] = scale * (grad[k] * gain[k] - sum - (from[k] - center) * scale * product);
  }
}

constexpr int kStrip = 32;     // columns of a block
constexpr int kStripRows = 8;  // rows that a block reads at once
// Rows of a part, at least. A thread reads those of a part one after the other: for 16 rows each, which are 4 parts of
// the 512 rows of the workload gpt, an H100 took 15 us.
constexpr int kPartRows = 32;
constexpr std::int64_t kMaxParts = 64;

std::int64_t parts_for(std::int64_t rows) { return std::clamp<std::int64_t>(rows / kPartRows, 1, kMaxParts); }

// Block (x, y) adds up part y of the rows for a strip of columns; part y of the results is at y * width.
template <class T>
__global__ void add_gain_grads(const T* x, const T* mean, const T* rstd, const T* g, T* gain_grad, T* bias_grad,
                               std::int64_t rows, std::int64_t width) {
  wait_for_inputs();
  __shared__ T gains[kStripRows][kStrip + 1], biases[kStripRows][kStrip + 1];
  std::int64_t column = std::int64_t{blockIdx.x} * kStrip + threadIdx.x;
  std::int64_t per_part = (rows + gridDim.y - 1) / gridDim.y;
  std::int64_t first = per_part * blockIdx.y, end = first + per_part < rows ? first + per_part : rows;
  T gain(0), bias(0);
  for (std::int64_t row = first + threadIdx.y; row < end && column < width; row += kStripRows) {
    T grad = g[row * width + column];
    T center = mean == nullptr ? T(0) : mean[row];
    gain += grad * ((x[row * width + column] - center) * rstd[row]);
    bias += grad;
  }
  gains[threadIdx.y][threadIdx.x] = gain;
  biases[threadIdx.y][threadIdx.x] = bias;
  __syncthreads();
  if (threadIdx.y > 1 || column >= width) return;
  T* out = threadIdx.y == 0 ? gain_grad : bias_grad;
  if (out == nullptr) return;
  auto& terms = threadIdx.y == 0 ? gains : biases;
  T sum(0);
  for (int j = 0; j < kStripRows; ++j) sum += terms[j][threadIdx.x];
  out[blockIdx.y * width + column] = sum;
}

template <class T>
__global__ void add_parts(const T* gain_parts, const T* bias_parts, T* gain_grad, T* bias_grad, std::int64_t parts,
                          std::int64_t width) {
  wait_for_inputs();
  for (std::int64_t c = thread_index(); c < width; c += all_threads()) {
    T gain(0), bias(0);
    for (std::int64_t p = 0; p < parts; ++p) gain += gain_parts[p * width + c];
    gain_grad[c] = gain;
    if (bias_grad == nullptr) continue;
    for (std::int64_t p = 0; p < parts; ++p) bias += bias_parts[p * width + c];
    bias_grad[c] = bias;
  }
}

// --- operands of the two ops. Forward: x, gain[, bias] -> y[, mean], rstd. Backward: x, gain[, mean], rstd, gradient
// of y -> gradients of x, gain[, bias].

template <class T>
struct Forward {
  const T *x, *gain, *bias;
  T *out, *mean, *rstd;
  std::int64_t width, rows;

  explicit Forward(const BodyArgs& a) {
    bool is_centered = a.attrs<NormAttrs>().is_centered;
    x = a.in<T>(0);
    gain = a.in<T>(1);
    bias = is_centered ? a.in<T>(2) : nullptr;
    out = a.out<T>(0);
    mean = is_centered ? a.out<T>(1) : nullptr;
    rstd = a.out<T>(is_centered ? 2 : 1);
    width = a.in_type(1).shape[0];
    rows = a.out_type(1).shape.size();
  }
};

template <class T>
struct Backward {
  const T *x, *gain, *mean, *rstd, *g;
  T *out, *gain_grad, *bias_grad;
  std::int64_t width, rows;

  explicit Backward(const BodyArgs& a) {
    bool is_centered = a.attrs<NormAttrs>().is_centered;
    x = a.in<T>(0);
    gain = a.in<T>(1);
    mean = is_centered ? a.in<T>(2) : nullptr;
    rstd = a.in<T>(is_centered ? 3 : 2);
    g = a.in<T>(is_centered ? 4 : 3);
    out = a.out<T>(0);
    gain_grad = a.out<T>(1);
    bias_grad = is_centered ? a.out<T>(2) : nullptr;
    width = a.in_type(1).shape[0];
    rows = a.in_type(2).shape.size();
  }
};

template <class T>
void norm_on(CudaArgs& a) {
  Forward<T> n(a);
  auto* kernel = n.width > kWarpRow ? norm_rows<T, ByBlock> : norm_rows<T, ByWarp>;
  a.launch(kernel, row_blocks(n.rows, n.width), kRowBlock, 0, n.x, n.gain, n.bias, n.out, n.mean, n.rstd, n.rows,
           n.width, static_cast<T>(a.attrs<NormAttrs>().epsilon));
}

template <class T>
void norm_grad_on(CudaArgs& a) {
  Backward<T> n(a);
  if (n.width == 0) return;
  auto* kernel = n.width > kWarpRow ? norm_grad_rows<T, ByBlock> : norm_grad_rows<T, ByWarp>;
  a.launch(kernel, row_blocks(n.rows, n.width), kRowBlock, 0, n.x, n.gain, n.mean, n.rstd, n.g, n.out, n.rows, n.width);
  std::int64_t parts = parts_for(n.rows);
  T* gain_parts = parts == 1 ? n.gain_grad : static_cast<T*>(a.workspace());
  T* bias_parts = parts == 1 || n.bias_grad == nullptr ? n.bias_grad : gain_parts + parts * n.width;
  Extent grid{static_cast<unsigned>((n.width + kStrip - 1) / kStrip), static_cast<unsigned>(parts)};
  a.launch(add_gain_grads<T>, grid, Extent{kStrip, kStripRows}, 0, n.x, n.mean, n.rstd, n.g, gain_parts, bias_parts,
           n.rows, n.width);
  if (parts == 1) return;
  a.launch(add_parts<T>, launch_size(n.width), gain_parts, bias_parts, n.gain_grad, n.bias_grad, parts, n.width);
}

template <class T>
void norm_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  Forward<T> n(a);
  auto count = static_cast<double>(n.width);
  const RowRange range(first, end, n.rows, n.width);
  for (std::int64_t row = range.first; row < range.end; ++row) {
    const T* x = n.x + row * n.width;
    double center = n.mean ? chained_sum(n.width, [=](std::int64_t k) { return double{x[k]}; }) / count : 0;
    double squares = chained_sum(n.width, [=](std::int64_t k) { return (x[k] - center) * (x[k] - center); });
    auto mean = static_cast<T>(center);
    auto scale = static_cast<T>(1 / math::sqrt(squares / count + a.attrs<NormAttrs>().epsilon));
    n.rstd[row] = scale;
    if (n.mean) n.mean[row] = mean;
    const T *gain = n.gain, *bias = n.bias;
    T* out = n.out + row * n.width;
    if (bias) {
      for_each_index(n.width, [=](std::int64_t k) { out[k] = (x[k] - mean) * scale * gain[k] + bias[k]; });
    } else {
      for_each_index(n.width, [=](std::int64_t k) { out[k] = x[k] * scale * gain[k]; });
    }
  }
}

// The gradients of x in some rows, and those of gain and bias in columns [first, end), for which rows are added up in
// their order, in the workspace. Both at once, so that rows are read once if one thread computes all.
template <class T>
void norm_grads(const CpuArgs& a, const RowRange& rows, std::int64_t first, std::int64_t end) {
  const Backward<T> n(a);
  const auto count = static_cast<double>(n.width);
  const std::int64_t columns = end - first;
  double *gain_sums = static_cast<double*>(a.workspace()) + first, *bias_sums = gain_sums + n.width;
  std::fill_n(gain_sums, columns, 0.0);
  std::fill_n(bias_sums, columns, 0.0);
  for (std::int64_t row = columns > 0 ? 0 : rows.first; row < (columns > 0 ? n.rows : rows.end); ++row) {
    const T *x = n.x + row * n.width, *g = n.g + row * n.width, *gain = n.gain;
    T center = n.mean ? n.mean[row] : T(0), scale = n.rstd[row];
    if (columns > 0) {
      const T *of_x = x + first, *of_g = g + first;
      for_each_index(columns, [=](std::int64_t k) { gain_sums[k] += double{of_g[k] * ((of_x[k] - center) * scale)}; });
      if (n.mean) for_each_index(columns, [=](std::int64_t k) { bias_sums[k] += double{of_g[k]}; });
    }
    if (row < rows.first || row >= rows.end) continue;
    T* out = n.out + row * n.width;
    auto product = static_cast<T>(
        chained_sum(n.width, [=](std::int64_t k) { return double{g[k] * gain[k] * ((x[k] - center) * scale)}; }) /
        count);
    T mean(0);
    if (n.mean)
      mean = static_cast<T>(chained_sum(n.width, [=](std::int64_t k) { return double{g[k] * gain[k]}; }) / count);
    for_each_index(
        n.width, [=](std::int64_t k) { out[k] = scale * (g[k] * gain[k] - mean - (x[k] - center) * scale * product); });
  }
  auto rounded = [](double sum) { return static_cast<T>(sum); };
  std::transform(gain_sums, gain_sums + columns, n.gain_grad + first, rounded);
  if (n.bias_grad) std::transform(bias_sums, bias_sums + columns, n.bias_grad + first, rounded);
}

// Tiles of rows, then tiles of columns.
constexpr std::int64_t kTileColumns = 64;
std::int64_t count_norm_grad_tiles(const BodyArgs& a) {
  const std::int64_t width = a.in_type(1).shape[0];
  return count_row_tiles(a.in_type(2).shape.size(), width) + (width + kTileColumns - 1) / kTileColumns;
}
template <class T>
void norm_grad_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const std::int64_t rows = a.in_type(2).shape.size(), width = a.in_type(1).shape[0];
  const std::int64_t row_tiles = count_row_tiles(rows, width);
  auto column_of = [=](std::int64_t tile) {
    return std::clamp<std::int64_t>((tile - row_tiles) * kTileColumns, 0, width);
  };
  norm_grads<T>(a, {std::min(first, row_tiles), std::min(end, row_tiles), rows, width}, column_of(first),
                column_of(end));
}
void run_norm_grad_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  a.in_type(0).dtype == DType::f32 ? norm_grad_tiles<float>(a, first, end) : norm_grad_tiles<double>(a, first, end);
}
constexpr Tiles kNormGradTiles{count_norm_grad_tiles, run_norm_grad_tiles};

void norm_cuda(CudaArgs& a) { a.in_type(0).dtype == DType::f32 ? norm_on<float>(a) : norm_on<double>(a); }

std::int64_t count_norm_tiles(const BodyArgs& a) {
  const Shape& x = a.in_type(0).shape;
  return x[-1] == 0 ? 1 : count_row_tiles(x.size() / x[-1], x[-1]);
}
void run_norm_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  a.in_type(0).dtype == DType::f32 ? norm_tiles<float>(a, first, end) : norm_tiles<double>(a, first, end);
}
constexpr Tiles kNormTiles{count_norm_tiles, run_norm_tiles};

void norm_grad_cuda(CudaArgs& a) {
  a.in_type(0).dtype == DType::f32 ? norm_grad_on<float>(a) : norm_grad_on<double>(a);
}

void infer_norm(InferArgs& a) {
  const auto& attrs = a.attrs<NormAttrs>();
  int inputs = attrs.is_centered ? 3 : 2;
  a.expect_inputs(inputs);
  a.expect_same_dtype(inputs);
  const Shape& x = a.in(0).shape;
  expect_dtype<float, double>(a, 0);
  if (x.rank() == 0) a.fail("there is no axis to normalize", "reshape() the operand");
  for (int i = 1; i < inputs; ++i)
    if (a.in(i).shape != Shape{x[-1]})
      a.fail(i == 1 ? "the gain is not one number for each column" : "the bias is not one number for each column",
             "make it a vector as long as the last axis");
  if (!(attrs.epsilon >= 0)) a.fail("epsilon is " + std::to_string(attrs.epsilon), "pass 0 or a small positive number");
  Shape rows(x.dims().first(static_cast<std::size_t>(x.rank() - 1)));
  a.out(a.in(0).dtype, x);
  for (int i = 1; i < inputs; ++i) a.out(a.in(0).dtype, rows);  // [mean,] rstd
}

// Inputs: x and the gain, the outputs of the norm but the first, and the gradient of the first.
void infer_norm_grad(InferArgs& a) {
  const bool is_centered = a.attrs<NormAttrs>().is_centered;
  const TensorType &x = a.in(0), &gain = a.in(1);
  const std::vector<TensorType> made =
      is_centered ? a.outputs_of(infer_norm, {x, gain, gain}) : a.outputs_of(infer_norm, {x, gain});
  const int outputs = static_cast<int>(made.size());
  a.expect_inputs(2 + outputs);
  for (int i = 1; i < outputs; ++i) a.expect_input(1 + i, made[static_cast<std::size_t>(i)]);
  a.expect_input(1 + outputs, made[0]);
  a.out(a.in(0).dtype, a.in(0).shape);
  for (int i = 0; i < (a.attrs<NormAttrs>().is_centered ? 2 : 1); ++i) a.out(a.in(0).dtype, a.in(1).shape);
}

template <class T>
void load_norm(const PrepareArgs& p) {
  load_kernels<norm_rows<T, ByWarp>, norm_rows<T, ByBlock>>(p);
}
template <class T>
void load_norm_grad(const PrepareArgs& p) {
  load_kernels<norm_grad_rows<T, ByWarp>, norm_grad_rows<T, ByBlock>, add_gain_grads<T>, add_parts<T>>(p);
}
Prepared prepare_norm(const PrepareArgs& p) {
  p.in(0).dtype == DType::f32 ? load_norm<float>(p) : load_norm<double>(p);
  return {};
}
Prepared prepare_norm_grad(const PrepareArgs& p) {
  p.in(0).dtype == DType::f32 ? load_norm_grad<float>(p) : load_norm_grad<double>(p);
  auto sums = static_cast<std::size_t>(2 * p.in(1).shape[0]);
  if (!p.cuda) return {nullptr, sums * sizeof(double)};
  auto parts = static_cast<std::size_t>(parts_for(p.in(2).shape.size()));
  return {nullptr, parts > 1 ? parts * sums * size_of(p.in(0).dtype) : 0};
}

// The gradients from x, gain and g alone, by ops that have gradients.
std::vector<Value> grad_formula(std::span<const Value> in, const Attrs& attrs) {
  const auto& [epsilon, is_centered] = attrs.as<NormAttrs>();
  const Value &x = in[0], &gain = in[1], &g = in.back();
  auto mean_of = [](const Value& v) { return mean(v, {-1}, {.keep_axes = true}); };
  const Value centered = is_centered ? x - mean_of(x) : x;
  const Value rstd = rsqrt(mean_of(centered * centered) + epsilon);
  const Value n = centered * rstd, h = g * gain, along = h - n * mean_of(h * n);
  if (!is_centered) return {rstd * along, sum_like(g * n, gain)};
  return {rstd * (along - mean_of(h)), sum_like(g * n, gain), sum_like(g, gain)};
}

const OpDef norm_grad_op{.name = "norm_grad",
                         .infer = infer_norm_grad,
                         .traits = {.kernels_wait = true},
                         .prepare = prepare_norm_grad,
                         .bodies = {kNormGradTiles, norm_grad_cuda},
                         .grad = grad_formula};

std::vector<Value> norm_grad(const GradArgs& a) {
  std::vector<Arg> inputs{Arg(a.inputs[0], a.where), a.inputs[1]};
  for (std::size_t i = 1; i < a.outputs.size(); ++i) inputs.emplace_back(a.outputs[i]);
  inputs.emplace_back(a.grads[0]);
  return emit(norm_grad_op, inputs, a.attrs);
}

constexpr OpDef op(std::string_view name) {
  return {.name = name,
          .infer = infer_norm,
          .traits = {.kernels_wait = true},
          .prepare = prepare_norm,
          .bodies = {kNormTiles, norm_cuda},
          .grad = norm_grad};
}
const OpDef layer_norm_op = op("layer_norm");
const OpDef rms_norm_op = op("rms_norm");

}  // namespace

Value layer_norm(Arg x, Arg gain, Arg bias, double epsilon, Placement placement) {
  return emit(layer_norm_op, {x, gain, bias}, NormAttrs{epsilon, true}, placement)[0];
}
Value rms_norm(Arg x, Arg gain, double epsilon, Placement placement) {
  return emit(rms_norm_op, {x, gain}, NormAttrs{epsilon, false}, placement)[0];
}

std::span<const FileOp> norm_file_ops() {
  static constexpr FileOp ops[] = {file_op<NormAttrs>(layer_norm_op), file_op<NormAttrs>(rms_norm_op),
                                   file_op<NormAttrs>(norm_grad_op)};
  return ops;
}

}  // namespace graphsink
