// softmax and log_softmax along an axis, and their gradients from the output y: y * (g - sum(g * y)) and
// g - exp(y) * sum(g). The maximum and the sum are found in one pass over a row: Milakov & Gimelshein 2018, "Online
// normalizer calculation for softmax".
#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/support/dtype.h"
#include "kernels/support/lines.h"
#include "kernels/support/row.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

struct SoftmaxAttrs {
  int axis;
  bool is_log;
  static auto fields(auto& s) { return std::tie("axis", s.axis, "is_log", s.is_log); }
};

// The maximum of some elements, and the sum of exp(x - maximum).
template <class T>
struct Normalizer {
  T largest = -INFINITY;
  T sum = T(0);

  HD void add(T x) {
    if (x < largest) {
      sum += math::exp(x - largest);
    } else if (x == largest) {  // -inf is not its own difference
      sum += T(1);
    } else {
      sum = sum * math::exp(largest - x) + T(1);
      largest = x;
    }
  }
  // The sum of exp(x - most), 0 of no elements; `most` is at least the maximum. NaN if `most` is infinite and was seen.
  HD T sum_below(T most) const { return sum == T(0) ? T(0) : sum * math::exp(largest - most); }
};

// `norm` is the sum, or its logarithm if is_log.
template <class T>
HD T softmax_value(T x, T largest, T norm, bool is_log) {
  return is_log ? x - largest - norm : math::exp(x - largest) / norm;
}
template <class T>
HD T softmax_grad_term(T y, T g, bool is_log) {
  return is_log ? g : g * y;
}
template <class T>
HD T softmax_grad_value(T y, T g, T sum, bool is_log) {
  return is_log ? g - math::exp(y) * sum : y * (g - sum);
}

template <class T, class Group>
__global__ void softmax_lines(const T* x, T* out, Lines lines, bool is_log) {
  wait_for_inputs();
  using W = Wide<T>;
  for (std::int64_t line = Group::first_row(); line < lines.count(); line += Group::stride()) {
    const std::int64_t first = lines.first(line);
    Normalizer<W> mine;
    for (std::int64_t k = Group::lane(); k < lines.length; k += Group::kSize) mine.add(x[first + k * lines.inner]);
    W largest = Group::combine(mine.largest, [](W a, W b) { return a < b ? b : a; });
    W sum = Group::sum(mine.sum_below(largest));
    W norm = is_log ? math::log(sum) : sum;
    for (std::int64_t k = Group::lane(); k < lines.length; k += Group::kSize) {
      std::int64_t i = first + k * lines.inner;
      out[i] = T(softmax_value<W>(x[i], largest, norm, is_log));
    }
  }
}

template <class T, class Group>
__global__ void softmax_grad_lines(const T* y, const T* g, T* out, Lines lines, bool is_log) {
  wait_for_inputs();
  using W = Wide<T>;
  for (std::int64_t line = Group::first_row(); line < lines.count(); line += Group::stride()) {
    const std::int64_t first = lines.first(line);
    W sum(0);
    for (std::int64_t k = Group::lane(); k < lines.length; k += Group::kSize) {
      std::int64_t i = first + k * lines.inner;
      sum += softmax_grad_term<W>(y[i], g[i], is_log);
    }
    sum = Group::sum(sum);
    for (std::int64_t k = Group::lane(); k < lines.length; k += Group::kSize) {
      std::int64_t i = first + k * lines.inner;
      out[i] = T(softmax_grad_value<W>(y[i], g[i], sum, is_log));
    }
  }
}

// Launches a kernel over lines: lines whose elements are not neighbours get a thread each, so that neighbouring threads
// read neighbours.
template <class Kernel, class... Args>
void launch_lines(CudaArgs& a, const Lines& lines, Kernel by_thread, Kernel by_warp, Kernel by_block,
                  const Args&... args) {
  if (lines.length == 0) return;
  if (lines.inner > 1) {
    return a.launch(by_thread, launch_size(lines.count()), args...);
  }
  a.launch(lines.length > kWarpRow ? by_block : by_warp, row_blocks(lines.count(), lines.length), kRowBlock, 0,
           args...);
}

template <class T>
void softmax_on(CudaArgs& a, const Lines& lines, bool is_log) {
  launch_lines(a, lines, softmax_lines<T, ByThread>, softmax_lines<T, ByWarp>, softmax_lines<T, ByBlock>, a.in<T>(0),
               a.out<T>(0), lines, is_log);
}

template <class T>
void softmax_grad_on(CudaArgs& a, const Lines& lines, bool is_log) {
  launch_lines(a, lines, softmax_grad_lines<T, ByThread>, softmax_grad_lines<T, ByWarp>, softmax_grad_lines<T, ByBlock>,
               a.in<T>(0), a.in<T>(1), a.out<T>(0), lines, is_log);
}

template <class T>
void softmax_row(const T* x, T* out, std::int64_t length, bool is_log) {
  using W = Wide<T>;
  W largest = chained_max(length, x);
  if (is_log) {
    W norm = static_cast<W>(math::log(exponential_sum(length, x, largest)));
    for_each_index(length, [=](std::int64_t k) { out[k] = T(softmax_value<W>(x[k], largest, norm, true)); });
  } else if (!std::is_same_v<T, W>) {
    W norm = static_cast<W>(exponential_sum(length, x, largest));
    for_each_index(length, [=](std::int64_t k) { out[k] = T(softmax_value<W>(x[k], largest, norm, false)); });
  } else {  // the result holds the exponentials exactly: they are computed once
    for_each_index(length, [=](std::int64_t k) { out[k] = T(math::exp(x[k] - largest)); });
    W sum = static_cast<W>(chained_sum(length, [=](std::int64_t k) { return double{out[k]}; }));
    for_each_index(length, [=](std::int64_t k) { out[k] = T(out[k] / sum); });
  }
}

// Neighbouring columns together, to read memory in order.
constexpr std::int64_t kColumns = 256;

// Softmax of `columns` columns, at most kColumns, whose rows are `inner` elements apart.
template <class T>
void softmax_block(const T* x, T* out, std::int64_t length, std::int64_t inner, std::int64_t columns, bool is_log) {
  using W = Wide<T>;
  W maxima[kColumns], sums[kColumns];
  W *most = maxima, *norm = sums;
  std::fill_n(most, columns, -std::numeric_limits<W>::infinity());
  std::fill_n(norm, columns, W(0));
  for (std::int64_t k = 0; k < length; ++k) {
    const T* row = x + k * inner;
    for_each_index(columns, [=](std::int64_t i) { most[i] = most[i] < W(row[i]) ? W(row[i]) : most[i]; });
  }
  // Where the result holds them exactly, the exponentials are computed once.
  bool are_kept = !is_log && std::is_same_v<T, W>;
  for (std::int64_t k = 0; k < length; ++k) {
    const T* row = x + k * inner;
    T* to = out + k * inner;
    if (are_kept) {
      for_each_index(columns, [=](std::int64_t i) {
        W e = math::exp(W(row[i]) - most[i]);
        to[i] = T(e);
        norm[i] += e;
      });
    } else {
      for_each_index(columns, [=](std::int64_t i) { norm[i] += math::exp(W(row[i]) - most[i]); });
    }
  }
  if (is_log) for_each_index(columns, [=](std::int64_t i) { norm[i] = math::log(norm[i]); });
  for (std::int64_t k = 0; k < length; ++k) {
    const T* row = x + k * inner;
    T* to = out + k * inner;
    if (are_kept) {
      for_each_index(columns, [=](std::int64_t i) { to[i] = T(to[i] / norm[i]); });
    } else if (is_log) {
      for_each_index(columns, [=](std::int64_t i) { to[i] = T(softmax_value<W>(row[i], most[i], norm[i], true)); });
    } else {
      for_each_index(columns, [=](std::int64_t i) { to[i] = T(softmax_value<W>(row[i], most[i], norm[i], false)); });
    }
  }
}

template <class T>
void softmax_on(const CpuArgs& a, const Lines& lines, bool is_log, const RowRange& range) {
  auto [outer, length, inner] = lines;
  for (std::int64_t o = range.first; o < range.end; ++o) {
    const T* x = a.in<T>(0) + o * length * inner;
    T* out = a.out<T>(0) + o * length * inner;
    if (inner == 1) {
      softmax_row(x, out, length, is_log);
      continue;
    }
    for (std::int64_t first = 0; first < inner; first += kColumns)
      softmax_block(x + first, out + first, length, inner, std::min(kColumns, inner - first), is_log);
  }
}

template <class T>
void softmax_grad_block(const T* y, const T* g, T* out, std::int64_t length, std::int64_t inner, std::int64_t columns,
                        bool is_log) {
  using W = Wide<T>;
  W sums[kColumns];
  W* sum = sums;
  std::fill_n(sum, columns, W(0));
  for (std::int64_t k = 0; k < length; ++k) {
    const T *from = y + k * inner, *grad = g + k * inner;
    for_each_index(columns, [=](std::int64_t i) { sum[i] += softmax_grad_term<W>(from[i], grad[i], is_log); });
  }
  for (std::int64_t k = 0; k < length; ++k) {
    const T *from = y + k * inner, *grad = g + k * inner;
    T* to = out + k * inner;
    if (is_log) {
      for_each_index(columns,
                     [=](std::int64_t i) { to[i] = T(softmax_grad_value<W>(from[i], grad[i], sum[i], true)); });
    } else {
      for_each_index(columns,
                     [=](std::int64_t i) { to[i] = T(softmax_grad_value<W>(from[i], grad[i], sum[i], false)); });
    }
  }
}

template <class T>
void softmax_grad_on(const CpuArgs& a, const Lines& lines, bool is_log, const RowRange& range) {
  using W = Wide<T>;
  auto [outer, length, inner] = lines;
  for (std::int64_t o = range.first; o < range.end; ++o) {
    const T *y = a.in<T>(0) + o * length * inner, *g = a.in<T>(1) + o * length * inner;
    T* out = a.out<T>(0) + o * length * inner;
    if (inner > 1) {
      for (std::int64_t first = 0; first < inner; first += kColumns) {
        softmax_grad_block(y + first, g + first, out + first, length, inner, std::min(kColumns, inner - first), is_log);
      }
    } else if (is_log) {
      auto sum = static_cast<W>(chained_sum(length, [=](std::int64_t k) { return double{W(g[k])}; }));
      for_each_index(length, [=](std::int64_t k) { out[k] = T(softmax_grad_value<W>(y[k], g[k], sum, true)); });
    } else {
      auto sum = static_cast<W>(
          chained_sum(length, [=](std::int64_t k) { return double{softmax_grad_term<W>(y[k], g[k], false)}; }));
      for_each_index(length, [=](std::int64_t k) { out[k] = T(softmax_grad_value<W>(y[k], g[k], sum, false)); });
    }
  }
}

Lines lines_of(const BodyArgs& a) { return lines_of(a.in_type(0).shape, a.attrs<SoftmaxAttrs>().axis); }

void forward(CudaArgs& a) {
  for_dtype<float, double, half, bfloat16>(
      a.in_type(0).dtype, [&]<class T>() { softmax_on<T>(a, lines_of(a), a.attrs<SoftmaxAttrs>().is_log); });
}
void backward(CudaArgs& a) {
  for_dtype<float, double, half, bfloat16>(
      a.in_type(0).dtype, [&]<class T>() { softmax_grad_on<T>(a, lines_of(a), a.attrs<SoftmaxAttrs>().is_log); });
}

// A tile is some of the outer lines, with all of the inner ones.
std::int64_t count_tiles(const BodyArgs& a) {
  const Lines lines = lines_of(a);
  return count_row_tiles(lines.outer, lines.length * lines.inner);
}
RowRange rows_of(const Lines& lines, std::int64_t first, std::int64_t end) {
  return {first, end, lines.outer, lines.length * lines.inner};
}
void run_forward_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const Lines lines = lines_of(a);
  for_dtype<float, double, half, bfloat16>(a.in_type(0).dtype, [&]<class T>() {
    softmax_on<T>(a, lines, a.attrs<SoftmaxAttrs>().is_log, rows_of(lines, first, end));
  });
}
void run_backward_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const Lines lines = lines_of(a);
  for_dtype<float, double, half, bfloat16>(a.in_type(0).dtype, [&]<class T>() {
    softmax_grad_on<T>(a, lines, a.attrs<SoftmaxAttrs>().is_log, rows_of(lines, first, end));
  });
}
constexpr Tiles kForwardTiles{count_tiles, run_forward_tiles}, kBackwardTiles{count_tiles, run_backward_tiles};

void infer_softmax(InferArgs& a) {
  a.expect_inputs(1);
  const Shape& shape = a.in(0).shape;
  expect_dtype<float, double, half, bfloat16>(a, 0);
  axis_from_front(a, a.attrs<SoftmaxAttrs>().axis, shape.rank());
  a.out(a.in(0).dtype, shape);
}

// Inputs: the forward output, the gradient of it.
void infer_softmax_grad(InferArgs& a) {
  a.expect_inputs(2);
  a.expect_input(1, a.outputs_of(infer_softmax, {a.in(0)})[0]);
  a.out(a.in(0).dtype, a.in(0).shape);
}

template <class T>
void load_softmax(const PrepareArgs& p) {
  load_kernels<softmax_lines<T, ByThread>, softmax_lines<T, ByWarp>, softmax_lines<T, ByBlock>>(p);
}
template <class T>
void load_softmax_grad(const PrepareArgs& p) {
  load_kernels<softmax_grad_lines<T, ByThread>, softmax_grad_lines<T, ByWarp>, softmax_grad_lines<T, ByBlock>>(p);
}
Prepared prepare_softmax(const PrepareArgs& p) {
  for_dtype<float, double, half, bfloat16>(p.in(0).dtype, [&]<class T>() { load_softmax<T>(p); });
  return {};
}
Prepared prepare_softmax_grad(const PrepareArgs& p) {
  for_dtype<float, double, half, bfloat16>(p.in(0).dtype, [&]<class T>() { load_softmax_grad<T>(p); });
  return {};
}

std::vector<Value> grad_formula(std::span<const Value> in, const Attrs& attrs) {
  const auto& [axis, is_log] = attrs.as<SoftmaxAttrs>();
  const Value &y = in[0], &g = in[1];
  if (is_log) return {g - exp(y) * sum(g, {axis}, {.keep_axes = true})};
  return {y * (g - sum(g * y, {axis}, {.keep_axes = true}))};
}

// An element is written by the thread that read it last, in place too.
constexpr Alias kInPlace[] = {{0, 0}};
constexpr Alias kGradInPlace[] = {{0, 0}, {0, 1}};
const OpDef softmax_grad_op{.name = "softmax_grad",
                            .infer = infer_softmax_grad,
                            .in_place = kGradInPlace,
                            .traits = {.kernels_wait = true},
                            .prepare = prepare_softmax_grad,
                            .bodies = {kBackwardTiles, backward},
                            .grad = grad_formula};

std::vector<Value> softmax_grad(const GradArgs& a) {
  return emit(softmax_grad_op, {Arg(a.outputs[0], a.where), a.grads[0]}, a.attrs);
}

constexpr OpDef op(std::string_view name) {
  return {.name = name,
          .infer = infer_softmax,
          .in_place = kInPlace,
          .traits = {.kernels_wait = true},
          .prepare = prepare_softmax,
          .bodies = {kForwardTiles, forward},
          .grad = softmax_grad};
}
const OpDef softmax_op = op("softmax");
const OpDef log_softmax_op = op("log_softmax");

}  // namespace

Value softmax(Arg x, int axis, Placement placement) {
  return emit(softmax_op, {x}, SoftmaxAttrs{axis, false}, placement)[0];
}
Value log_softmax(Arg x, int axis, Placement placement) {
  return emit(log_softmax_op, {x}, SoftmaxAttrs{axis, true}, placement)[0];
}

std::span<const FileOp> softmax_file_ops() {
  static constexpr FileOp ops[] = {file_op<SoftmaxAttrs>(softmax_op), file_op<SoftmaxAttrs>(log_softmax_op),
                                   file_op<SoftmaxAttrs>(softmax_grad_op)};
  return ops;
}

}  // namespace graphsink
