// The built-in ops, one declaration per line. Element-wise ops broadcast as in NumPy. An op that cannot take its
// operands throws Error, which names the user's line.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "graphsink/graph.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// "Floats" below means f32, f64, f16 and bf16. Elements of f16 and bf16 are computed in f32, and each op rounds its
// result once.
//
// Gradients (grad.h) pass through floats, and can be differentiated themselves, any number of times. No gradient passes
// through booleans and integers.
//
// Axes are numbered from 0; negative numbers count from the last axis.
//
// `placement` says where the op runs (graph.h). It applies to all nodes that the op consists of.
//
// Infinities and NaNs follow IEEE 754. Ops that choose elements (relu, minimum, maximum, min, max, max_pool2d, top_k)
// prefer a NaN to every number. The chosen element receives the gradient, also if it is a NaN.

// Element-wise arithmetic on floats, i32 and i64; integers wrap around. div takes floats only.
Value add(Arg a, Arg b, Placement placement = {});  // a + b
Value sub(Arg a, Arg b, Placement placement = {});  // a - b, for the dtypes of add()
Value mul(Arg a, Arg b, Placement placement = {});  // a * b, for the dtypes of add()
Value div(Arg a, Arg b, Placement placement = {});  // a / b, of floats
// The smaller or the larger operand, element-wise, for all dtypes of add. If either is a NaN, the result is NaN. Equal
// operands, and two NaNs, share the gradient equally.
Value minimum(Arg a, Arg b, Placement placement = {});  // the smaller operand
Value maximum(Arg a, Arg b, Placement placement = {});  // the larger operand; otherwise as minimum()
// a to the power of b, on floats.
Value pow(Arg a, Arg b, Placement placement = {});
// Limits x to the range [low, high], element-wise, for all dtypes of add and u8. A NaN stays a NaN. The gradient passes
// where low <= x <= high, and at a NaN. Throws Error if low > high, or if the dtype cannot hold a bound; bounds may be
// infinite.
Value clamp(Arg x, double low, double high, Placement placement = {});

// Element-wise functions of floats; neg also takes i32 and i64. The gradients of abs and relu at 0 are 0, and that of
// abs at a NaN is NaN.
Value neg(Arg x, Placement placement = {});      // -x
Value abs(Arg x, Placement placement = {});      // the absolute value; its gradient at 0 is 0
Value exp(Arg x, Placement placement = {});      // e to the power of x
Value log(Arg x, Placement placement = {});      // the natural logarithm
Value sqrt(Arg x, Placement placement = {});     // the square root; NaN below 0
Value rsqrt(Arg x, Placement placement = {});    // 1 / sqrt(x)
Value sin(Arg x, Placement placement = {});      // the sine of an angle in radians
Value cos(Arg x, Placement placement = {});      // the cosine of an angle in radians
Value tanh(Arg x, Placement placement = {});     // the hyperbolic tangent
Value relu(Arg x, Placement placement = {});     // the larger one of x and 0; its gradient at 0 is 0
Value sigmoid(Arg x, Placement placement = {});  // 1 / (1 + exp(-x))
Value silu(Arg x, Placement placement = {});     // x * sigmoid(x)
// x * P(X < x) for a standard normal X, in the usual approximation with tanh (Hendrycks & Gimpel 2016, "Gaussian error
// linear units").
Value gelu(Arg x, Placement placement = {});

Value erf(Arg x, Placement placement = {});  // 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x
// These are constant almost everywhere, so their gradients are 0. sign is 1 or -1, or x itself if x is zero or NaN; it
// also takes i32 and i64. round gives the nearest integer, and of two equally near ones the even one.
Value sign(Arg x, Placement placement = {});
Value floor(Arg x, Placement placement = {});  // the largest integer that is not above x
Value ceil(Arg x, Placement placement = {});   // the smallest integer that is not below x
Value round(Arg x, Placement placement = {});  // the nearest integer, or the even one of two
// Returns x, of any dtype, as a Value through which no gradient flows.
Value stop_gradient(Arg x, Placement placement = {});

// Element-wise comparisons; the result is boolean. equal and not_equal also take booleans. If one operand is a C++
// number that the dtype of the other cannot hold, the result is that of exact arithmetic: less(x, 300) is true for
// every x of u8.
Value less(Arg a, Arg b, Placement placement = {});           // a < b
Value less_equal(Arg a, Arg b, Placement placement = {});     // a <= b, see less()
Value greater(Arg a, Arg b, Placement placement = {});        // a > b, see less()
Value greater_equal(Arg a, Arg b, Placement placement = {});  // a >= b, see less()
Value equal(Arg a, Arg b, Placement placement = {});          // a == b, see less()
Value not_equal(Arg a, Arg b, Placement placement = {});      // a != b, see less()

// Element-wise on booleans.
Value logical_and(Arg a, Arg b, Placement placement = {});  // a and b
Value logical_or(Arg a, Arg b, Placement placement = {});   // a or b, or both
Value logical_xor(Arg a, Arg b, Placement placement = {});  // a or b, but not both
Value logical_not(Arg x, Placement placement = {});         // not a boolean x

// Takes elements of a where `condition`, a boolean, is true, and of b elsewhere. All three broadcast; a and b have the
// same dtype: f32 if both are numbers, boolean if both are true or false.
Value where(Arg condition, Arg a, Arg b, Placement placement = {});

// Converts any dtype to any other, with the same result on every device. Conversions to floats round to nearest even.
// A float becomes an integer by truncation; values outside the range become its nearest end, and NaN becomes 0. An
// integer becomes a shorter one by keeping the low bits. A boolean result is x != 0.
Value cast(Arg x, DType dtype, Placement placement = {});

// Options of matmul().
struct MatmulOptions {
  bool transpose_a = false;       // the last two axes of a are [k, m]
  bool transpose_b = false;       // the last two axes of b are [n, k]
  bool tf32 = false;              // allows the device to round f32 operands to TF32, if that is faster
  std::optional<DType> out = {};  // dtype of the result: that of the operands, or f32 if they are f16 or bf16
};
// The matrix product of floats: [..., m, k] x [..., k, n] -> [..., m, n]. Axes before the last two broadcast as in
// NumPy. Products of f16 and bf16 are summed in f32 and rounded once; with `out` = f32 they are not rounded, and the
// gradient, which then is f32, is rounded to the dtype of the operands first.
Value matmul(Arg a, Arg b, MatmulOptions options = {}, Placement placement = {});

// The axes of a reduction, counted from the end if negative: sum(x, 1), sum(x, {0, -1}). None: all of them.
struct Axes {
  std::vector<int> list;  // as they were given; empty: all axes

  Axes() = default;
  // One axis: an int, so that neither another number nor a bool is taken for an axis.
  template <std::same_as<int> T>
  Axes(T axis) : list{axis} {}  // NOLINT: implicit, as are all of these
  // Several axes, each once, in any order.
  Axes(std::initializer_list<int> axes) : list(axes) {}
  // The same, for axes that are computed.
  Axes(std::vector<int> axes) : list(std::move(axes)) {}
};

// Options of the reductions, such as sum().
struct ReduceOptions {
  bool keep_axes = false;  // reduced axes are kept with size 1, else they are dropped
};
// Sum and mean over the given axes, or over all if `axes` is empty. Both take floats; f16 and bf16 are summed in f32
// and rounded once. sum and sum_like also take i32 and i64, which wrap around.
Value sum(Arg x, Axes axes = {}, ReduceOptions options = {}, Placement placement = {});
Value mean(Arg x, Axes axes = {}, ReduceOptions options = {}, Placement placement = {});  // sum(x) / number of elements
// Options of var().
struct VarOptions {
  bool keep_axes = false;  // as ReduceOptions::keep_axes
  double correction = 0;   // 0 as in NumPy, or 1 for the unbiased estimate of PyTorch
};
// The variance of floats over axes as in sum: the sum of squared deviations divided by n - correction, where n is the
// number of elements. Throws Error for a correction other than 0 unless correction < n; if an axis is open, n is not
// known, and n = correction gives NaN. With a correction of 0, no elements give NaN, as in mean().
Value var(Arg x, Axes axes = {}, VarOptions options = {}, Placement placement = {});
// The product over axes as in sum, of floats (computed in f64 and rounded once) or of i32 and i64, which wrap around.
// The product of no elements is 1. A second derivative makes n * n elements of n that are multiplied along an axis.
Value prod(Arg x, Axes axes = {}, ReduceOptions options = {}, Placement placement = {});
// log(sum(exp(x))) of floats over axes as in sum, correct also where exp(x) would overflow. -inf for no elements.
Value logsumexp(Arg x, Axes axes = {}, ReduceOptions options = {}, Placement placement = {});
// Whether any, or all, of the booleans are true, over axes as in sum.
Value any(Arg x, Axes axes = {}, ReduceOptions options = {}, Placement placement = {});  // false of no elements
Value all(Arg x, Axes axes = {}, ReduceOptions options = {}, Placement placement = {});  // see any(); true of none
// The largest or the smallest element over axes as in sum, of any dtype but boolean. The result is NaN if an element is
// NaN. Equal elements share the gradient equally, and so do NaNs. Throws Error if there is no element.
Value max(Arg x, Axes axes = {}, ReduceOptions options = {}, Placement placement = {});
Value min(Arg x, Axes axes = {}, ReduceOptions options = {}, Placement placement = {});  // smallest element, see max()
// The index of that element along one axis, as i32: of equal elements the first, and the first NaN if there is one. The
// axis has at most 2^31 - 1 elements.
Value argmax(Arg x, int axis, ReduceOptions options = {}, Placement placement = {});
Value argmin(Arg x, int axis, ReduceOptions options = {}, Placement placement = {});  // smallest element, see argmax()
// Result of top_k().
struct TopK {
  Value values;   // elements in the dtype of x, the largest first
  Value indices;  // i32, of the shape of `values`: the place of each along the axis of x
};
// The k largest elements along an axis, the largest first, and their indices; the axis then has size k, from 1 to 1024.
// Equal elements keep their order, and NaNs come before all numbers. Takes any dtype but boolean. The gradient of the
// values goes to the chosen elements.
TopK top_k(Arg x, std::int64_t k, int axis = -1, Placement placement = {});

// Result of sort().
struct Sorted {
  Value values;   // elements in order, of the type of x
  Value indices;  // i32, of the shape of x: the place of each along the axis of x
};
// Options of sort().
struct SortOptions {
  bool descending = false;  // the largest first
};
// Sorts the elements along an axis, the smallest first by default, and returns them with their indices
// in x. Equal elements keep their order, and NaN counts as the largest. Takes any dtype but boolean. The gradient of
// the values goes to the elements that they came from.
Sorted sort(Arg x, int axis = -1, SortOptions options = {}, Placement placement = {});

// Options of cumsum().
struct CumsumOptions {
  bool exclusive = false;  // does not add the element itself
  bool reverse = false;    // adds the elements after it instead of those before it
  // The members with their names, see fields.h.
  static auto fields(auto& s) { return std::tie("exclusive", s.exclusive, "reverse", s.reverse); }
};
// For each element along an axis, the sum of it and all elements before it. Takes the dtypes of sum.
Value cumsum(Arg x, int axis, CumsumOptions options = {}, Placement placement = {});

// The size of an axis as an i32 scalar. If the axis is open, it is the size of the data that was written last. Throws
// Error if the axis has 2^31 elements or more.
Value dim(Arg x, int axis, Placement placement = {});
// The mean of the values where the mask, of a shape that can be broadcast to theirs, is true; 0 if it is so nowhere.
// Other values do not show in it, and get a gradient of 0, even if they are infinite or NaN.
Value masked_mean(Arg values, Arg mask, Placement placement = {});

// The numbers 0, 1, 2, ... as a vector of the size of an axis of `like`, which may be open. The data of `like` is not
// read. dtype is f32, f64, i32 or i64; f32 counts to 2^24 at most.
Value arange(Arg like, int axis, DType dtype = i32, Placement placement = {});
// The numbers begin, begin + step, begin + 2 * step, ... before `end`, as a constant vector. It is empty if `end` does
// not come after `begin`. Takes any dtype but boolean that can hold all of the numbers.
Value arange(const Graph& graph, DType dtype, double begin, double end, double step = 1,
             Where where = Where::current());
// Replaces each i32 index by a line of `classes` zeros with a 1 at the index, along a new last axis. An index outside
// [0, classes) gives zeros and fails the step.
Value one_hot(Arg indices, std::int64_t classes, DType dtype = f32, Placement placement = {});

// Broadcasts x to the shape of `like`, or sums it to that shape. The data of `like` is not read.
Value broadcast_like(Arg x, Arg like, Placement placement = {});  // adds axes in front, and repeats axes of size 1
Value sum_like(Arg x, Arg like, Placement placement = {});        // the reverse, see broadcast_like()

// A dimension of the result of reshape(): a size, or -1 for what the other dimensions leave over, or keep(axis) for the
// size of an axis of the operand, which may be open.
struct NewDim {
  std::int64_t size = 0;         // a size, or -1 for what is left over
  std::optional<int> kept = {};  // the axis of keep(); empty: `size` counts
  // A size, or -1.
  template <std::integral T>
  NewDim(T n) : size(static_cast<std::int64_t>(n)) {}  // NOLINT: implicit
  friend NewDim keep(int axis);
  // The members with their names, see fields.h.
  static auto fields(auto& s) { return std::tie("size", s.size, "kept", s.kept); }

 private:
  NewDim() = default;
};
// The size of an axis of reshape()'s operand, counted from the end if negative. Each axis may be kept once.
NewDim keep(int axis);

// The shape that reshape() makes: {keep(0), 4, -1}, or a Shape without open dimensions.
class NewShape {
 public:
  // Sizes, -1 and keep(), outermost first.
  NewShape(std::initializer_list<NewDim> dims) : dims_(dims) {}  // NOLINT: implicit, as are
  // The same, for dimensions that are computed.
  NewShape(std::vector<NewDim> dims) : dims_(std::move(dims)) {}  // NOLINT: all of these
  // The sizes of a Shape. Throws Error if a dimension is open.
  NewShape(const Shape& shape, Where where = Where::current());  // NOLINT
  const std::vector<NewDim>& dims() const { return dims_; }      // as they were given

 private:
  std::vector<NewDim> dims_;
};

// A view of the same elements in another shape. The number of elements must not change; at most one dimension is -1.
Value reshape(Arg x, NewShape shape, Placement placement = {});
Value reshape_like(Arg x, Arg like, Placement placement = {});  // to the shape of `like`, whose data is not read
// Views. flatten makes one axis of all axes from `axis` on; squeeze removes an axis of size 1; unsqueeze inserts an
// axis of size 1, which is axis `axis` of the result.
Value flatten(Arg x, int axis = 1, Placement placement = {});  // [a, b, c] becomes [a, b * c]
Value squeeze(Arg x, int axis, Placement placement = {});      // a view without an axis, which must have size 1
Value unsqueeze(Arg x, int axis, Placement placement = {});    // a view with one more axis, of size 1, see flatten()
// Swaps the last two axes. The result is a copy.
Value transpose(Arg x, Placement placement = {});
// Reorders all axes: axis d of the result is axis axes[d] of x. The result is a copy.
Value permute(Arg x, std::vector<int> axes, Placement placement = {});

// Sets the elements above (tril) or below (triu) a diagonal of the matrices of the last two axes to 0. Diagonal 0 is
// the main diagonal, and positive ones lie above it. Takes any dtype.
Value tril(Arg x, std::int64_t diagonal = 0, Placement placement = {});  // keeps the diagonal and what lies below
Value triu(Arg x, std::int64_t diagonal = 0, Placement placement = {});  // keeps the diagonal and above, see tril()

// x[begin:end:step, ...] as in NumPy: negative bounds count from the end, and bounds outside the axis are moved to its
// nearest end. Axes without bounds are taken whole, and missing steps are 1. The result is a copy.
Value slice(Arg x, std::vector<std::int64_t> begins, std::vector<std::int64_t> ends,
            std::vector<std::int64_t> steps = {}, Placement placement = {});
// Adds before[d] elements before and after[d] elements after x along each axis d, all equal to `value`. Throws Error if
// the dtype of x cannot hold `value`.
Value pad(Arg x, std::vector<std::int64_t> before, std::vector<std::int64_t> after, double value = 0,
          Placement placement = {});
// Joins Values along an axis, one at least. Their shapes may differ in that axis only.
Value concat(const std::vector<Arg>& values, int axis, Placement placement = {}, Where where = Where::current());
// Joins Values of one shape along a new axis.
Value stack(const std::vector<Arg>& values, int axis = 0, Placement placement = {}, Where where = Where::current());
// The same for what an op has returned, such as split().
template <std::same_as<std::vector<Value>> Values>
Value concat(const Values& values, int axis, Placement placement = {}, Where where = Where::current()) {
  return concat(operands(values, where), axis, placement, where);
}
// The same for stack().
template <std::same_as<std::vector<Value>> Values>
Value stack(const Values& values, int axis = 0, Placement placement = {}, Where where = Where::current()) {
  return stack(operands(values, where), axis, placement, where);
}
// The reverse of concat: splits x along an axis into parts of these sizes, or into `parts` parts of one size.
std::vector<Value> split(Arg x, std::vector<std::int64_t> sizes, int axis, Placement placement = {});
std::vector<Value> split(Arg x, int parts, int axis, Placement placement = {});  // `parts` equal parts of the axis

// Selects elements along an axis by i32 indices, whose axes replace that axis: x [a, n, b] and indices [...] give
// [a, ..., b]. An index outside [0, n) gives zeros and fails the step.
Value gather(Arg x, Arg indices, int axis = 0, Placement placement = {});
// Adds updates [a, ..., b] to a copy of base [a, n, b] at i32 indices [...] along an axis. Updates of equal indices are
// added in their order, so that every run gives the same bits. An index outside [0, n) adds nothing and fails the step.
// Takes floats and i32.
Value scatter_add(Arg base, Arg indices, Arg updates, int axis = 0, Placement placement = {});

// Selects along an axis, with indices of their own for each line: result[..., k, ...] = x[..., indices[..., k, ...],
// ...]. The i32 indices have the shape of x except along the axis; the result has the shape of the indices. An index
// outside the axis gives a zero and fails the step. Gradients of equal indices are added in their order, so that every
// run gives the same bits.
Value take_along_axis(Arg x, Arg indices, int axis, Placement placement = {});

// Selects rows of table [v, d] by i32 indices [...]; the result is [..., d]. An index outside [0, v) gives a row of
// zeros and fails the step.
Value embedding(Arg table, Arg indices, Placement placement = {});

// Options of conv2d().
struct Conv2dOptions {
  std::array<std::int64_t, 2> stride{1, 1};    // for h and w: from one place of a filter to the next
  std::array<std::int64_t, 2> padding{0, 0};   // for h and w: zeros in front, and as many behind
  std::array<std::int64_t, 2> dilation{1, 1};  // for h and w: from one element under a filter to the next
  // Number of groups. Filter i of the o filters is applied only to the channels of group i / (o / groups).
  std::int64_t groups = 1;
  // The members with their names, see fields.h.
  static auto fields(auto& s) {
    return std::tie("stride", s.stride, "padding", s.padding, "dilation", s.dilation, "groups", s.groups);
  }
};
// Convolution of images [n, c, h, w] with filters [o, c / groups, kh, kw]. The result is [n, o, h', w'] with
// h' = (h + 2 padding - dilation (kh - 1) - 1) / stride + 1, and w' correspondingly. Padding consists of zeros, and
// filters are not flipped. Takes f32 and f64.
Value conv2d(Arg x, Arg w, Conv2dOptions options = {}, Placement placement = {});

// Options of max_pool2d() and avg_pool2d().
struct Pool2dOptions {
  std::array<std::int64_t, 2> stride{0, 0};   // for h and w; 0: the size of the window
  std::array<std::int64_t, 2> padding{0, 0};  // must be smaller than the window
  // The members with their names, see fields.h.
  static auto fields(auto& s) { return std::tie("stride", s.stride, "padding", s.padding); }
};
// The largest element of each window [h, w] over the last two axes. It never is padding, and is NaN if the window has
// one. The gradient goes to the first of equal elements. Takes f32 and f64.
Value max_pool2d(Arg x, std::array<std::int64_t, 2> window, Pool2dOptions options = {}, Placement placement = {});
// The mean of each window [h, w] over the last two axes, in which padding counts as zeros. Takes f32 and f64.
Value avg_pool2d(Arg x, std::array<std::int64_t, 2> window, Pool2dOptions options = {}, Placement placement = {});

// Options of cross_entropy().
struct CrossEntropyOptions {
  // Rows with this target are ignored: they have no gradient and do not count in the mean.
  std::optional<std::int64_t> ignore_index = {};
  bool per_row = false;  // returns the loss of each row, 0 for ignored ones, instead of the mean
  // The members with their names, see fields.h.
  static auto fields(auto& s) { return std::tie("ignore_index", s.ignore_index, "per_row", s.per_row); }
};
// The mean over rows of -log softmax(logits)[target], a scalar; with per_row, the loss of each row [n]. logits is [n,
// c], f32 or f64; targets is [n], i32 or i64. The mean over no rows is NaN, and its gradient is 0. A target outside [0,
// c) that is not ignored fails the step.
Value cross_entropy(Arg logits, Arg targets, CrossEntropyOptions options = {}, Placement placement = {});
// The share of rows whose largest logit, as argmax() finds it, is that of the label: an f32 scalar. logits is [..., c],
// of any dtype but boolean; labels is [...], i32 or i64; a label outside [0, c) is never right. With a mask, booleans
// that can be broadcast to the labels, only rows where it is true count; the share of no rows is then 0, without a mask
// NaN. It has no gradient.
Value accuracy(Arg logits, Arg labels, Placement placement = {});
Value accuracy(Arg logits, Arg labels, Arg mask, Placement placement = {});  // only rows of the mask count

// exp(x) / sum(exp(x)) along an axis, and its logarithm. Both take floats. As in NumPy, a whole line becomes NaN if one
// of its elements is NaN or +inf, or if all are -inf.
Value softmax(Arg x, int axis = -1, Placement placement = {});      // exp(x) / sum(exp(x))
Value log_softmax(Arg x, int axis = -1, Placement placement = {});  // x - logsumexp(x), see softmax()
// Normalizes x [..., n] along its last axis: (x - mean(x)) / sqrt(variance(x) + epsilon) * gain + bias, where gain and
// bias are [n]. Takes f32 and f64.
Value layer_norm(Arg x, Arg gain, Arg bias, double epsilon = 1e-5, Placement placement = {});
// Scales x [..., n] along its last axis: x / sqrt(mean(x * x) + epsilon) * gain, where gain is [n]. Takes f32 and f64.
Value rms_norm(Arg x, Arg gain, double epsilon = 1e-5, Placement placement = {});

// Result of batch_norm() for training.
struct BatchNorm {
  Value y;         // has the shape of x
  Value mean;      // mean of the batch, [c]
  Value variance;  // variance of the batch, [c]: squared deviations divided by the number of elements
};
// Normalizes each channel c of x [n, c, ...] over all other axes, for training: (x - mean) / sqrt(variance + epsilon) *
// gain + bias, where gain and bias are [c]. The caller keeps running statistics for evaluation, for example
//   graph.assign(mean, 0.9 * graph.value(mean) + 0.1 * normed.mean);
// Takes floats. For f16 and bf16, the mean and the variance are f32.
BatchNorm batch_norm(Arg x, Arg gain, Arg bias, double epsilon = 1e-5, Placement placement = {});
// The same with a given mean and variance [c], for evaluation.
Value batch_norm(Arg x, Arg gain, Arg bias, Arg mean, Arg variance, double epsilon = 1e-5, Placement placement = {});
// Normalizes each sample over groups of neighbouring channels, c / groups channels in each: x is [n, c, ...], gain and
// bias are [c].
Value group_norm(Arg x, int groups, Arg gain, Arg bias, double epsilon = 1e-5, Placement placement = {});

// Options of attention().
struct AttentionOptions {
  // Query i sees the keys up to i + keys - queries, so that the last query sees all (as in FlashAttention 2.1).
  bool causal = false;
  double scale = 0;  // factor of the scores; 0: 1 / sqrt(width)
  // The members with their names, see fields.h.
  static auto fields(auto& s) { return std::tie("causal", s.causal, "scale", s.scale); }
};
// softmax(scale * q k^T) v for each head. q is [batch, heads, queries, width], k and v are [batch, heads, keys, width],
// and the result has the shape of q. A query that sees no key gives zeros. The v of a key that a query does not see
// is multiplied by 0: it must be finite, or the result may be NaN. The width is at most 128. A second
// derivative keeps the scores in memory. Takes f32 and f64.
Value attention(Arg q, Arg k, Arg v, AttentionOptions options = {}, Placement placement = {});
// The same with a boolean mask, which is false where a query must not see a key, or with a bias of the dtype of q,
// which is added to the scores and has a gradient. Either broadcasts to [batch, heads, queries, keys]. The width may be
// anything, and the scores are kept in memory for the gradient. If the bias makes all scores of a query -inf, the
// result is NaN, as in softmax().
Value attention(Arg q, Arg k, Arg v, Arg mask_or_bias, AttentionOptions options = {}, Placement placement = {});

// Random numbers, f32 or f64, of the type of `like`, whose data is not read, or of the given type. random_uniform draws
// from [low, high); rounding may give `high` itself. random_normal draws from a normal distribution. The numbers depend
// only on the program's seed, the step, the number of the node in the graph and the iterations of the loops around it,
// of which there may be two; a loop with `recompute` counts twice. They are the same in every mode; uniform numbers are
// the same on every device, and normal numbers may differ there in the last bits. For a part of a tensor, such as the
// rows of one rank, see RandomPart. Throws Error unless low <= high and deviation >= 0.
//
// Nodes are numbered as the functions of ops.h are called. C++ does not say in which order the operands of one
// expression are evaluated: of f(dropout(x, 0.5), dropout(y, 0.5)), g++ on x86-64 makes the last dropout first, clang
// and compilers for ARM the first. To draw the same numbers with every compiler, give random ops statements of their
// own.
Value random_uniform(Arg like, double low = 0, double high = 1, Placement placement = {});
Value random_uniform(const Graph& graph, DType dtype, Shape shape, double low = 0, double high = 1,
                     Placement placement = {}, Where where = Where::current());  // the same, of the given type
// As random_uniform(), from a normal distribution of this mean and standard deviation. The numbers may differ in the
// last bits on another device. Throws Error unless deviation >= 0.
Value random_normal(Arg like, double mean = 0, double deviation = 1, Placement placement = {});
Value random_normal(const Graph& graph, DType dtype, Shape shape, double mean = 0, double deviation = 1,
                    Placement placement = {}, Where where = Where::current());  // the same, of the given type
// Random integers from low to high - 1, i32 or i64, of the shape of `like` or the given shape. They depend on the same
// as random_uniform, and are the same on every device. Throws Error unless 1 <= high - low <= 2^32.
Value randint(Arg like, std::int64_t low, std::int64_t high, DType dtype = i32, Placement placement = {});
Value randint(const Graph& graph, DType dtype, Shape shape, std::int64_t low, std::int64_t high,
              Placement placement = {}, Where where = Where::current());  // the same, of the given type
// Random booleans that are true with the given probabilities, a Value of f32 or f64, or one number. They depend on the
// same as random_uniform. A probability in a Value that is below 0 or NaN counts as 0, and one above 1 counts as 1. A
// number outside [0, 1] throws Error.
Value bernoulli(Arg probabilities, Placement placement = {});
Value bernoulli(const Graph& graph, Shape shape, double probability, Placement placement = {},
                Where where = Where::current());  // the same, with one probability
// Sets each element to 0 with the given probability, which is in [0, 1), and divides the others by 1 - probability. The
// gradient uses the same mask. The choice depends on the same as random_uniform. Leave dropout out of graphs for
// evaluation. Takes f32 and f64.
Value dropout(Arg x, double probability, Placement placement = {});

// Returns x, and fails the step if an element is not finite.
Value check_finite(Arg x, Placement placement = {});

inline Value operator+(Arg a, Arg b) { return add(std::move(a), std::move(b)); }             // see add()
inline Value operator-(Arg a, Arg b) { return sub(std::move(a), std::move(b)); }             // see sub()
inline Value operator*(Arg a, Arg b) { return mul(std::move(a), std::move(b)); }             // see mul()
inline Value operator/(Arg a, Arg b) { return div(std::move(a), std::move(b)); }             // see div()
inline Value operator-(Arg x) { return neg(std::move(x)); }                                  // see neg()
inline Value operator<(Arg a, Arg b) { return less(std::move(a), std::move(b)); }            // see less()
inline Value operator<=(Arg a, Arg b) { return less_equal(std::move(a), std::move(b)); }     // see less_equal()
inline Value operator>(Arg a, Arg b) { return greater(std::move(a), std::move(b)); }         // see greater()
inline Value operator>=(Arg a, Arg b) { return greater_equal(std::move(a), std::move(b)); }  // see greater_equal()
// Element by element, as all operators: none of them tells whether two Values are the same node, and && and || compute
// both operands.
inline Value operator==(Arg a, Arg b) { return equal(std::move(a), std::move(b)); }
inline Value operator!=(Arg a, Arg b) { return not_equal(std::move(a), std::move(b)); }    // see not_equal()
inline Value operator!(Arg x) { return logical_not(std::move(x)); }                        // see logical_not()
inline Value operator&&(Arg a, Arg b) { return logical_and(std::move(a), std::move(b)); }  // see logical_and()
inline Value operator||(Arg a, Arg b) { return logical_or(std::move(a), std::move(b)); }   // see logical_or()
// Make the handle refer to a new Value; what it referred to stays as it is. To change a Variable, see assign().
inline Value& operator+=(Value& a, Arg b) { return a = add(Arg(a, b.where()), b); }
inline Value& operator-=(Value& a, Arg b) { return a = sub(Arg(a, b.where()), b); }  // a = a - b, likewise
inline Value& operator*=(Value& a, Arg b) { return a = mul(Arg(a, b.where()), b); }  // a = a * b, likewise
inline Value& operator/=(Value& a, Arg b) { return a = div(Arg(a, b.where()), b); }  // a = a / b, likewise

}  // namespace graphsink
