// The built-in ops, one declaration per line. Element-wise ops broadcast as in NumPy. Every op throws Error naming the
// user's line for operands it cannot take.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "graphsink/graph.h"

namespace graphsink {

// Floats are f32, f64, f16 and bf16. Elements of f16 and bf16 are computed in f32 and rounded once for each op.
//
// A placement holds for all nodes that an op is made of.
//
// Infinities and NaNs are those of IEEE 754. Ops that choose elements (relu, minimum, maximum, min, max, max_pool2d,
// top_k) choose a NaN before all others, and whatever they choose gets the gradient: a NaN just as a number.

// Element-wise on floats, i32, i64, which wrap (div: floats only).
Value add(Arg a, Arg b, Placement placement = {});
Value sub(Arg a, Arg b, Placement placement = {});
Value mul(Arg a, Arg b, Placement placement = {});
Value div(Arg a, Arg b, Placement placement = {});
// The smaller or larger of both, on numbers; a NaN in either is the result. Equal operands, and two NaNs, share the
// gradient.
Value minimum(Arg a, Arg b, Placement placement = {});
Value maximum(Arg a, Arg b, Placement placement = {});
// a to the power of b, on floats.
Value pow(Arg a, Arg b, Placement placement = {});
// x, but `low` where it is below that and `high` where it is above, on numbers and u8; the bounds, of which low is not
// the larger, are numbers that the dtype holds, infinite ones too. A NaN stays one. The gradient passes where x is from
// low to high.
Value clamp(Arg x, double low, double high, Placement placement = {});

// Element-wise on floats; neg also on i32, i64. The gradients of abs and relu at 0 are 0; that of abs at a NaN is NaN.
Value neg(Arg x, Placement placement = {});
Value abs(Arg x, Placement placement = {});
Value exp(Arg x, Placement placement = {});
Value log(Arg x, Placement placement = {});
Value sqrt(Arg x, Placement placement = {});
Value rsqrt(Arg x, Placement placement = {});  // 1 / sqrt(x)
Value sin(Arg x, Placement placement = {});
Value cos(Arg x, Placement placement = {});
Value tanh(Arg x, Placement placement = {});
Value relu(Arg x, Placement placement = {});
Value sigmoid(Arg x, Placement placement = {});  // 1 / (1 + exp(-x))
Value silu(Arg x, Placement placement = {});     // x * sigmoid(x)
// x * P(X < x) of a normal X, by its usual approximation with tanh (Hendrycks & Gimpel 2016, "Gaussian error linear
// units").
Value gelu(Arg x, Placement placement = {});

Value erf(Arg x, Placement placement = {});  // 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x
// Constant almost everywhere: their gradients are 0. sign (also on i32, i64): 1, -1, or x itself if it is zero or NaN;
// round: the nearest integer, and the even one of two.
Value sign(Arg x, Placement placement = {});
Value floor(Arg x, Placement placement = {});
Value ceil(Arg x, Placement placement = {});
Value round(Arg x, Placement placement = {});
// x itself, of any dtype; no gradient flows through it.
Value stop_gradient(Arg x, Placement placement = {});

// Comparisons of numbers to boolean (equal: of booleans as well). With a number that the dtype of the other operand
// cannot hold, the answer is that of exact arithmetic: less(x, 300) is true for every x of u8.
Value less(Arg a, Arg b, Placement placement = {});
Value less_equal(Arg a, Arg b, Placement placement = {});
Value greater(Arg a, Arg b, Placement placement = {});
Value greater_equal(Arg a, Arg b, Placement placement = {});
Value equal(Arg a, Arg b, Placement placement = {});
Value not_equal(Arg a, Arg b, Placement placement = {});

// Element-wise on booleans.
Value logical_and(Arg a, Arg b, Placement placement = {});
Value logical_or(Arg a, Arg b, Placement placement = {});
Value logical_xor(Arg a, Arg b, Placement placement = {});
Value logical_not(Arg x, Placement placement = {});

// Elements of a where `condition`, a boolean, is true, of b elsewhere; all three broadcast. a and b of one dtype.
Value where(Arg condition, Arg a, Arg b, Placement placement = {});

// Any dtype to any other, with the same result on every device. Floats round to nearest even. Floats to integers are
// truncated, at the end of the range where they are outside it, and 0 for a NaN; integers to shorter ones keep the low
// bits; to boolean: x != 0.
Value cast(Arg x, DType dtype, Placement placement = {});

struct MatmulOptions {
  bool transpose_a = false;       // the last two axes of a are [k, m]
  bool transpose_b = false;       // the last two axes of b are [n, k]
  bool tf32 = false;              // f32 operands may be rounded to TF32, where the device is faster with them
  std::optional<DType> out = {};  // of the result: that of the operands, or f32 of f16 and bf16
};
// [..., m, k] x [..., k, n] -> [..., m, n], the axes before the last two broadcast as in NumPy. Floats: sums of f16
// and bf16 are f32 and rounded once, or with `out` not at all; a gradient that comes in f32 is first rounded to theirs.
Value matmul(Arg a, Arg b, MatmulOptions options = {}, Placement placement = {});
inline Value matmul(Arg a, Arg b, bool transpose_a, bool transpose_b = false, Placement placement = {}) {
  return matmul(std::move(a), std::move(b), MatmulOptions{transpose_a, transpose_b}, placement);
}

// Over the given axes (negative: from the end), all of them if empty; reduced axes are dropped unless keep_axes.
// Floats (of f16 and bf16 the sum is f32, rounded at the end); sum and sum_like also i32, i64, which wrap.
Value sum(Arg x, std::vector<int> axes = {}, bool keep_axes = false, Placement placement = {});
Value mean(Arg x, std::vector<int> axes = {}, bool keep_axes = false, Placement placement = {});
// The variance over axes as of sum, divided by the number n of elements less `correction`: 0 as in NumPy, 1 for the
// unbiased estimate of PyTorch. Refused unless it is below n; where axes are open, that is up to the caller: n =
// correction gives NaN. f16 and bf16 are computed in f32.
Value var(Arg x, std::vector<int> axes = {}, bool keep_axes = false, double correction = 0, Placement placement = {});
// The product over axes as of sum, of floats (in f64, rounded once) or of i32, i64, which wrap; 1 of nothing.
Value prod(Arg x, std::vector<int> axes = {}, bool keep_axes = false, Placement placement = {});
// log(sum(exp(x))) over axes as of sum, of floats, where exp(x) may overflow; -inf of nothing.
Value logsumexp(Arg x, std::vector<int> axes = {}, bool keep_axes = false, Placement placement = {});
// Of booleans, over axes as of sum: is any true, are all?
Value any(Arg x, std::vector<int> axes = {}, bool keep_axes = false, Placement placement = {});
Value all(Arg x, std::vector<int> axes = {}, bool keep_axes = false, Placement placement = {});
// The largest or smallest element over axes as of sum, of any dtype but boolean; NaN if there is one. Equal elements,
// and all NaNs, share the gradient. At least one element is reduced.
Value max(Arg x, std::vector<int> axes = {}, bool keep_axes = false, Placement placement = {});
Value min(Arg x, std::vector<int> axes = {}, bool keep_axes = false, Placement placement = {});
// The index i32 of that element along one axis of at most 2^31 - 1: the first of equals, the first NaN if there is one.
Value argmax(Arg x, int axis, bool keep_axis = false, Placement placement = {});
Value argmin(Arg x, int axis, bool keep_axis = false, Placement placement = {});
struct TopK {
  Value values, indices;  // of the dtype of x, and i32; of one shape
};
// The k largest elements of an axis, from 1 to 1024, in its place: the largest first, of equals the first, NaNs before
// all others; and their indices. Any dtype but boolean; the gradient of the values goes to the elements chosen.
TopK top_k(Arg x, std::int64_t k, int axis = -1, Placement placement = {});

struct Sorted {
  Value values, indices;  // of the dtype of x, and i32; of its shape
};
// The elements of an axis in order, the smallest first unless `descending`, equals as they are in x; a NaN counts as
// the largest. And their indices. Any dtype but boolean; the gradient of the values goes to the elements they are.
Sorted sort(Arg x, int axis = -1, bool descending = false, Placement placement = {});

struct CumsumOptions {
  bool exclusive = false;  // without the element itself
  bool reverse = false;    // of those behind it instead of those before
};
// The sum of each element of an axis (negative: from the end) and those before it, of dtypes as for sum.
Value cumsum(Arg x, int axis, CumsumOptions options = {}, Placement placement = {});

// The size of an axis (negative: from the end), open or not, as an i32 scalar; what was written last counts. Throws
// Error where an axis has 2^31 elements or more.
Value dim(Arg x, int axis, Placement placement = {});

// The numbers 0, 1, 2, ... of an axis (negative: from the end) of `like` (whose data is not read), open or not: f32,
// f64, i32 or i64 [size]. Of f32 at most 2^24.
Value arange(Arg like, int axis, DType dtype = i32, Placement placement = {});
// begin, begin + step, begin + 2 * step, ... up to `end`, which is not among them, as a constant; none if `end` is not
// behind `begin`. Of any dtype but boolean that holds all of them.
Value arange(const Graph& graph, DType dtype, double begin, double end, double step = 1,
             Where where = Where::current());
// For each index i32 a line [classes] of zeros with a 1 at the index, as a new last axis. An index outside
// [0, classes) gives zeros and fails the step.
Value one_hot(Arg indices, std::int64_t classes, DType dtype = f32, Placement placement = {});

// x broadcast to, or summed to, the shape of `like` (whose data is not read).
Value broadcast_like(Arg x, Arg like, Placement placement = {});
Value sum_like(Arg x, Arg like, Placement placement = {});

// A dimension of the result of reshape(): a size, -1 for what the other dimensions leave over, or that of an axis of
// the operand, which may be open: keep(axis), negative from the end.
struct NewDim {
  std::int64_t size = 0;
  std::optional<int> kept = {};  // else
  template <std::integral T>
  NewDim(T n) : size(static_cast<std::int64_t>(n)) {}  // NOLINT: implicit
  friend NewDim keep(int axis);

 private:
  NewDim() = default;
};
NewDim keep(int axis);

// What reshape() makes: {keep(0), 4, -1}, or a Shape without open dimensions.
class NewShape {
 public:
  NewShape(std::initializer_list<NewDim> dims) : dims_(dims) {}   // NOLINT: implicit, as are
  NewShape(std::vector<NewDim> dims) : dims_(std::move(dims)) {}  // NOLINT: all of these
  NewShape(const Shape& shape, Where where = Where::current());   // NOLINT
  const std::vector<NewDim>& dims() const { return dims_; }

 private:
  std::vector<NewDim> dims_;
};

// A view of the same elements, whose number may not change. At most one dimension is -1.
Value reshape(Arg x, NewShape shape, Placement placement = {});
Value reshape_like(Arg x, Arg like, Placement placement = {});
// Views: all axes from `axis` on become one; an axis of size 1 goes away, or becomes axis `axis` of the result.
Value flatten(Arg x, int axis = 1, Placement placement = {});
Value squeeze(Arg x, int axis, Placement placement = {});
Value unsqueeze(Arg x, int axis, Placement placement = {});
// Swaps the last two axes (a copy).
Value transpose(Arg x, Placement placement = {});
// Axis d of the result is axis axes[d] of x; all axes of x are named, negative ones from the end (a copy).
Value permute(Arg x, std::vector<int> axes, Placement placement = {});

// The matrices of the last two axes, of any dtype, with zeros above, or below, a diagonal: 0 the main one, positive
// ones above it.
Value tril(Arg x, std::int64_t diagonal = 0, Placement placement = {});
Value triu(Arg x, std::int64_t diagonal = 0, Placement placement = {});

// The end of slice() that takes all elements that are left in the direction of the step.
inline constexpr std::int64_t to_end = std::numeric_limits<std::int64_t>::max();
// x[begin:end:step, ...] as in NumPy (a copy): negative bounds count from the end, bounds beyond an end stop there.
// Axes that are not named are whole; missing steps are 1.
Value slice(Arg x, std::vector<std::int64_t> begins, std::vector<std::int64_t> ends,
            std::vector<std::int64_t> steps = {}, Placement placement = {});
// x with so many elements of `value`, which the dtype of x must be able to hold, before and after it on each axis.
Value pad(Arg x, std::vector<std::int64_t> before, std::vector<std::int64_t> after, double value = 0,
          Placement placement = {});
// One after the other along an axis, on which alone their shapes differ.
Value concat(const std::vector<Arg>& values, int axis, Placement placement = {});
// Tensors of one shape along a new axis.
Value stack(const std::vector<Arg>& values, int axis = 0, Placement placement = {});
// The reverse of concat: parts of these sizes along an axis, or `parts` equal ones.
std::vector<Value> split(Arg x, std::vector<std::int64_t> sizes, int axis, Placement placement = {});
std::vector<Value> split(Arg x, int parts, int axis, Placement placement = {});

// The elements of an axis by indices i32 [...], which take the axis's place: [a, n, b] -> [a, ..., b]. An index outside
// [0, n) gives zeros and fails the step.
Value gather(Arg x, Arg indices, int axis = 0, Placement placement = {});
// base [a, n, b] plus updates [a, ..., b] at indices i32 [...] of an axis; equal indices add up in their order, the
// same on every run. An index outside [0, n) adds nothing and fails the step. Floats, i32.
Value scatter_add(Arg base, Arg indices, Arg updates, int axis = 0, Placement placement = {});

// Element indices[..., k, ...] of each line of an axis: indices i32 of the shape of x, but for the axis itself, whose
// size is that of the result. An index outside the axis gives a zero and fails the step. Gradients of equal indices add
// up in their order, the same on every run.
Value take_along_axis(Arg x, Arg indices, int axis, Placement placement = {});

// Rows of table [v, d] by indices i32 [...] -> [..., d]; an index outside [0, v) gives a row of zeros and fails the
// step.
Value embedding(Arg table, Arg indices, Placement placement = {});

struct Conv2dOptions {
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};  // of h and w
  std::int64_t groups = 1;  // filter i of o sees the channels of group i / (o / groups) alone
};
// Images [n, c, h, w], filters [o, c / groups, kh, kw] -> [n, o, h', w'] where h' = (h + 2 padding - dilation (kh - 1)
// - 1) / stride + 1, likewise w'; padding is zeros, filters are not flipped. f32, f64.
Value conv2d(Arg x, Arg w, Conv2dOptions options = {}, Placement placement = {});

struct Pool2dOptions {
  std::array<std::int64_t, 2> stride{0, 0};   // of h and w; 0: the size of the window
  std::array<std::int64_t, 2> padding{0, 0};  // below the size of the window
};
// The largest element or the mean of each window over [..., h, w]. The largest is never padding, NaN if there is one,
// and the first of equals has the gradient; padding counts as zeros in the mean. f32, f64.
Value max_pool2d(Arg x, std::array<std::int64_t, 2> window, Pool2dOptions options = {}, Placement placement = {});
Value avg_pool2d(Arg x, std::array<std::int64_t, 2> window, Pool2dOptions options = {}, Placement placement = {});

struct CrossEntropyOptions {
  std::optional<std::int64_t> ignore_index = {};  // rows of this target have no loss, no gradient, no part in the mean
  bool per_row = false;                           // the loss of each row, 0 where it is ignored, in place of the mean
};
// Mean over rows of -log softmax(logits)[target]: logits [n, c], targets i32 or i64 [n] -> scalar, or [n] for each row.
// The mean over no rows is NaN, and its gradient 0. Other targets outside [0, c) fail the step. f32, f64.
Value cross_entropy(Arg logits, Arg targets, CrossEntropyOptions options = {}, Placement placement = {});

// exp(x) / sum(exp(x)) along an axis (negative: from the end), and its logarithm. Floats: f16 and bf16 are
// computed in f32 and rounded once. As in NumPy, all of a line is NaN if an element of it is NaN or +inf, or if all are
// -inf.
Value softmax(Arg x, int axis = -1, Placement placement = {});
Value log_softmax(Arg x, int axis = -1, Placement placement = {});
// (x - mean(x)) / sqrt(variance(x) + epsilon) * gain + bias, and x / sqrt(mean(x * x) + epsilon) * gain, along the last
// axis of x [..., n]; gain and bias are [n]. f32, f64.
Value layer_norm(Arg x, Arg gain, Arg bias, double epsilon = 1e-5, Placement placement = {});
Value rms_norm(Arg x, Arg gain, double epsilon = 1e-5, Placement placement = {});

struct BatchNorm {
  Value y;               // of the shape of x
  Value mean, variance;  // of the batch: [c], the variance divided by the number of elements
};
// (x - mean) / sqrt(variance + epsilon) * gain + bias of x [n, c, ...], for each channel c over all other axes; gain
// and bias are [c]. For training; what is kept for evaluation is up to the caller:
//   graph.assign(mean, 0.9 * graph.value(mean) + 0.1 * normed.mean);
// Floats: f16 and bf16 are computed in f32, as the mean and the variance are then.
BatchNorm batch_norm(Arg x, Arg gain, Arg bias, double epsilon = 1e-5, Placement placement = {});
// The same with a mean and a variance [c] that are given: for evaluation.
Value batch_norm(Arg x, Arg gain, Arg bias, Arg mean, Arg variance, double epsilon = 1e-5, Placement placement = {});
// The same for each sample and group of neighbouring channels, whose number is divided by `groups`: x [n, c, ...], gain
// and bias [c].
Value group_norm(Arg x, int groups, Arg gain, Arg bias, double epsilon = 1e-5, Placement placement = {});

struct AttentionOptions {
  bool causal = false;  // query i sees keys up to i + keys - queries: the last query sees all, as in FlashAttention 2.1
  double scale = 0;     // of the scores; 0: 1 / sqrt(width)
};
// softmax(scale * q k^T) v for each head: q [batch, heads, queries, width], k and v [batch, heads, keys, width] ->
// shape of q. A query that sees no key gives zeros. Width up to 128; f32, f64.
Value attention(Arg q, Arg k, Arg v, AttentionOptions options = {}, Placement placement = {});
// The same with a mask, which is false where a query does not see a key, or a bias of the dtype of q, which is added to
// the scores and has a gradient: either broadcasts to [batch, heads, queries, keys]. Any width; the scores are kept in
// memory for the gradient. Scores that are all -inf by the bias give NaN, as in softmax().
Value attention(Arg q, Arg k, Arg v, Arg mask_or_bias, AttentionOptions options = {}, Placement placement = {});

// Random f32 or f64 of the type of `like` (whose data is not read), or of the type given: uniform in [low, high], the
// upper end by rounding alone, or normal; low is at most high, a deviation at least 0. The same for the same seed of
// the program, step, node of the graph and iteration of the loops around it (two at most), in every mode; uniform ones
// on every device, normal ones up to the last bits.
Value random_uniform(Arg like, double low = 0, double high = 1, Placement placement = {});
Value random_uniform(const Graph& graph, DType dtype, Shape shape, double low = 0, double high = 1,
                     Placement placement = {}, Where where = Where::current());
Value random_normal(Arg like, double mean = 0, double deviation = 1, Placement placement = {});
Value random_normal(const Graph& graph, DType dtype, Shape shape, double mean = 0, double deviation = 1,
                    Placement placement = {}, Where where = Where::current());
// Random integers from `low` to `high` - 1, i32 or i64, of the shape of `like` or the one given: high - low is from 1
// to 2^32. Else as for random_uniform, and the same on every device.
Value randint(Arg like, std::int64_t low, std::int64_t high, DType dtype = i32, Placement placement = {});
Value randint(const Graph& graph, DType dtype, Shape shape, std::int64_t low, std::int64_t high,
              Placement placement = {}, Where where = Where::current());
// Booleans that are true with these probabilities, f32 or f64, or with this one, from 0 to 1: as for random_uniform.
// A probability below 0 or NaN counts as 0 and one above 1 as 1, but the one number, which is refused.
Value bernoulli(Arg probabilities, Placement placement = {});
Value bernoulli(const Graph& graph, Shape shape, double probability, Placement placement = {},
                Where where = Where::current());
// x / (1 - probability), and 0 with the given probability, in [0, 1), as for random_uniform; its gradient has the same
// mask. For training alone: leave it out where a model is evaluated. f32, f64.
Value dropout(Arg x, double probability, Placement placement = {});

// x itself; fails the step if an element is not finite.
Value check_finite(Arg x, Placement placement = {});

inline Value operator+(Arg a, Arg b) { return add(std::move(a), std::move(b)); }
inline Value operator-(Arg a, Arg b) { return sub(std::move(a), std::move(b)); }
inline Value operator*(Arg a, Arg b) { return mul(std::move(a), std::move(b)); }
inline Value operator/(Arg a, Arg b) { return div(std::move(a), std::move(b)); }
inline Value operator-(Arg x) { return neg(std::move(x)); }
inline Value operator<(Arg a, Arg b) { return less(std::move(a), std::move(b)); }
inline Value operator<=(Arg a, Arg b) { return less_equal(std::move(a), std::move(b)); }
inline Value operator>(Arg a, Arg b) { return greater(std::move(a), std::move(b)); }
inline Value operator>=(Arg a, Arg b) { return greater_equal(std::move(a), std::move(b)); }

}  // namespace graphsink
