// Ops that are made of other ops: their gradients are those of the parts.
#include <cmath>
#include <limits>
#include <variant>

#include "base/convert.h"
#include "base/number_text.h"
#include "build/composed.h"

namespace graphsink {
namespace {

// --- var

// The number of elements over these axes, which infer() has checked, as a number, or as a scalar of `dtype` where an
// axis is open.
std::variant<double, Value> count_over(const Composed& c, const Value& x, std::vector<int> axes, DType dtype) {
  Shape shape = x.shape();
  if (axes.empty())
    for (int d = 0; d < shape.rank(); ++d) axes.push_back(d);
  double fixed = 1;
  Value open;
  for (int axis : axes) {
    if (!shape.is_open(axis)) {
      fixed *= static_cast<double>(shape[axis]);
    } else {
      Value size = cast(c.arg(dim(c.arg(x), axis, c.placement)), dtype, c.placement);
      open = open.valid() ? mul(c.arg(open), c.arg(size), c.placement) : size;
    }
  }
  if (!open.valid()) return fixed;
  return mul(c.arg(open), c.arg(fixed), c.placement);
}

// --- norms over axes: (x - mean) / sqrt(variance + epsilon) * gain + bias, a gain and a bias for each channel

// [c] as [c, 1, ..., 1], which broadcasts to x [n, c, ...].
Value by_channel(const Composed& c, Value x, int rank) {
  for (int d = 2; d < rank; ++d) x = unsqueeze(c.arg(x), -1);
  return x;
}

void check_norm(const Composed& c, const Value& x, std::initializer_list<std::pair<const char*, Value>> of_channels,
                double epsilon) {
  c.expect_floats(x, "the operand");
  Shape shape = x.shape();
  if (shape.rank() < 2)
    c.fail("the operand has no channels: " + to_string(x.type()), "reshape() it to [n, channels, ...]");
  if (shape.is_open(1)) c.fail("the number of channels is open: " + to_string(x.type()), "give it a size");
  if (!(epsilon >= 0) || !std::isfinite(epsilon))
    c.fail("epsilon is " + number_text(epsilon), "pass a finite number of at least 0");
  for (const auto& [name, value] : of_channels) {
    c.expect_floats(value, name);
    if (value.shape().rank() != 1 || value.shape().is_open(0) || value.shape()[0] != shape[1]) {
      c.fail(std::string(name) + " is not one number for each channel: " + to_string(x.type()) + ", " +
                 to_string(value.type()),
             "pass a vector of " + std::to_string(shape[1]));
    }
  }
}

Value squared_mean(const Composed& c, const Value& x, const std::vector<int>& axes, bool keep_axes) {
  return mean(c.arg(mul(c.arg(x), c.arg(x), c.placement)), axes, {.keep_axes = keep_axes}, c.placement);
}

// 1 / sqrt(spread + epsilon)
Value inverse_deviation(const Composed& c, const Value& spread, double epsilon) {
  return rsqrt(c.arg(add(c.arg(spread), c.arg(epsilon), c.placement)), c.placement);
}

// `centred` is x less its mean, `spread` the variance with as many axes; the result is of `dtype`.
Value scaled(const Composed& c, const Value& centred, const Value& spread, double epsilon, Value gain, Value bias,
             DType dtype) {
  int rank = centred.shape().rank();
  gain = by_channel(c, c.as(centred.dtype(), gain), rank);
  bias = by_channel(c, c.as(centred.dtype(), bias), rank);
  Value scale = mul(c.arg(inverse_deviation(c, spread, epsilon)), c.arg(gain), c.placement);
  return c.as(dtype, add(c.arg(mul(c.arg(centred), c.arg(scale), c.placement)), c.arg(bias), c.placement));
}

// --- masks, labels and attention with a mask or bias

// Open dimensions are checked when the program meets their sizes.
void check_broadcast(const Composed& c, const Value& extra, const Value& whole, const char* problem,
                     const char* remedy) {
  Shape from = extra.shape(), to = whole.shape();
  bool fits = from.rank() <= to.rank();
  for (int d = -1; fits && d >= -from.rank(); --d)
    fits = from.is_open(d) || to.is_open(d) || from[d] == 1 || from[d] == to[d];
  if (fits) return;
  c.fail(problem + to_string(extra.type()) + ", " + to_string(whole.type()), remedy);
}

// Whether the largest logit of each row is that of the label.
Value right_rows(const Composed& c, const Value& logits, const Value& labels) {
  const Shape rows = labels.shape(), all = logits.shape();
  bool fits = all.rank() == rows.rank() + 1;
  for (int d = 0; fits && d < rows.rank(); ++d) fits = rows.is_open(d) || all.is_open(d) || rows[d] == all[d];
  if (!fits) {
    c.fail(
        "the labels are not one for each row of logits: " + to_string(logits.type()) + ", " + to_string(labels.type()),
        "pass logits [..., classes] and labels [...]");
  }
  if (labels.dtype() != DType::i32 && labels.dtype() != DType::i64)
    c.fail("the labels are " + to_string(labels.type()), "pass i32 or i64");
  const Value found = argmax(c.arg(logits), -1, {}, c.placement);
  return equal(c.arg(c.as(labels.dtype(), found)), c.arg(labels), c.placement);
}

void check_attention(const Composed& c, const Value& q, const Value& k, const Value& v) {
  for (const Value& x : {q, k, v}) {
    if (x.shape().rank() != 4 || (x.dtype() != DType::f32 && x.dtype() != DType::f64) || x.dtype() != q.dtype()) {
      c.fail("q, k and v are not all f32 or all f64 [batch, heads, length, width]: " + to_string(q.type()) + ", " +
                 to_string(k.type()) + ", " + to_string(v.type()),
             "reshape() or cast() them");
    }
  }
  auto differ = [](const Value& a, const Value& b, int axis) {
    Shape left = a.shape(), right = b.shape();
    return !left.is_open(axis) && !right.is_open(axis) && left[axis] != right[axis];
  };
  for (int axis = 0; axis < 4; ++axis) {
    if (differ(k, v, axis) || (axis != 2 && differ(q, k, axis))) {
      c.fail("q, k, v do not fit together: " + to_string(q.type()) + ", " + to_string(k.type()) + ", " +
                 to_string(v.type()),
             "let q and k differ in length alone, and k and v not at all");
    }
  }
}

}  // namespace

Value Value::operator[](const Index& index) const {
  const Where& where = index.where();
  const Shape shape = this->shape(where);
  if (shape.rank() == 0) throw Error("index", where, "a scalar has no axis", "use the scalar itself");
  const std::int64_t i = index.begin();
  if (index.end()) return slice(Arg(*this, where), {i}, {*index.end()});
  if (shape.is_open(0)) {
    if (i != 0 && i != -1)
      throw Error("index", where, std::to_string(i) + " of an open axis, which may have one element",
                  "use 0 or -1, or gather()");
  } else if (i < -shape[0] || i >= shape[0]) {
    throw Error("index", where, std::to_string(i) + " of " + to_string(type(where)),
                "use an index from " + std::to_string(-shape[0]) + " to " + std::to_string(shape[0] - 1));
  }
  return squeeze(Arg(slice(Arg(*this, where), {i}, {i == -1 ? to_end : i + 1}), where), 0);
}

Value var(Arg x, Axes axes, VarOptions options, Placement placement) {
  Composed c("var", x.where(), placement);
  const double correction = options.correction;
  Value operand = c.values({x})[0];
  c.expect_floats(operand, "the operand");
  if (!std::isfinite(correction)) c.fail("the correction is " + number_text(correction), "pass 0 or 1");
  Value wide = c.wide(operand), center;
  try {
    center = mean(c.arg(wide), axes, {.keep_axes = true}, placement);
  } catch (const Error& e) {  // the axes are wrong
    c.fail(e.problem(), e.remedy());
  }
  Value result = squared_mean(c, sub(c.arg(wide), c.arg(center), placement), axes.list, options.keep_axes);
  if (correction != 0) {
    std::variant<double, Value> count = count_over(c, operand, axes.list, wide.dtype());
    if (const double* n = std::get_if<double>(&count)) {
      if (*n <= correction) {
        c.fail("the correction " + number_text(correction) + " is not below the number of elements, " + number_text(*n),
               "pass a smaller correction, or reduce more elements");
      }
      result = mul(c.arg(result), c.arg(*n / (*n - correction)), placement);
    } else {
      Arg n_open = c.arg(std::get<Value>(count));
      Value factor = div(n_open, c.arg(sub(n_open, c.arg(correction), placement)), placement);
      result = mul(c.arg(result), c.arg(factor), placement);
    }
  }
  return c.finished(c.as(operand.dtype(), result));
}

Value arange(const Graph& graph, DType dtype, double begin, double end, double step, Where where) {
  Composed c("arange", where);
  if (dtype == DType::boolean) c.fail("makes numbers, not bool", "compare the result");
  for (double x : {begin, end, step})
    if (!std::isfinite(x)) c.fail("a bound or the step is " + number_text(x), "pass finite numbers");
  if (step == 0) c.fail("the step is 0", "pass one that leads from the first bound to the second");
  double count = std::max(0.0, std::ceil((end - begin) / step));
  if (count > 0x1p40) c.fail("more than 2^40 numbers", "pass bounds that are closer, or a larger step");
  double last = begin + (count - 1) * step;
  for (double x : {begin, step, last})
    if (count > 0 && !holds(dtype, x) && (x != step || count > 1))
      c.fail("the number " + number_text(x) + " is not one of " + std::string(to_string(dtype)),
             "ask for another dtype");
  Tensor numbers(DType::f64, {static_cast<std::int64_t>(count)});
  std::span<double> elements = numbers.as<double>();
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = begin + static_cast<double>(i) * step;
  Value result = Graph(graph).constant(std::move(numbers), where);
  return dtype == DType::f64 ? result : cast(Arg(result, where), dtype);
}

Value bernoulli(Arg probabilities, Placement placement) {
  Composed c("bernoulli", probabilities.where(), placement);
  Value p = c.values({probabilities})[0];
  if (p.dtype() != DType::f32 && p.dtype() != DType::f64)
    c.fail("the probabilities are not f32 or f64: " + to_string(p.type()), "cast() them");
  return c.finished(less(c.arg(random_uniform(c.arg(p), 0, 1, placement)), c.arg(p), placement));
}
Value bernoulli(const Graph& graph, Shape shape, double probability, Placement placement, Where where) {
  if (!(probability >= 0 && probability <= 1))
    throw Error("bernoulli", where, "the probability is " + number_text(probability), "pass one from 0 to 1");
  Value uniform = random_uniform(graph, DType::f64, shape, 0, 1, placement, where);
  return less(Arg(uniform, where), Arg(probability, where), placement);
}

BatchNorm batch_norm(Arg x, Arg gain, Arg bias, double epsilon, Placement placement) {
  Composed c("batch_norm", x.where(), placement);
  std::vector<Value> in = c.values({x, gain, bias});
  const Value &operand = in[0], &g = in[1], &b = in[2];
  check_norm(c, operand, {{"the gain", g}, {"the bias", b}}, epsilon);
  std::vector<int> axes{0};
  for (int d = 2; d < operand.shape().rank(); ++d) axes.push_back(d);
  Value wide = c.wide(operand);
  Value center = mean(c.arg(wide), axes, {.keep_axes = true}, placement),
        centred = sub(c.arg(wide), c.arg(center), placement);
  Value spread = squared_mean(c, centred, axes, true);
  Value y = scaled(c, centred, spread, epsilon, g, b, operand.dtype());
  std::int64_t channels = operand.shape()[1];
  BatchNorm result{y, reshape(c.arg(center), {channels}), reshape(c.arg(spread), {channels})};
  c.finish({result.y, result.mean, result.variance});
  return result;
}

Value batch_norm(Arg x, Arg gain, Arg bias, Arg mean, Arg variance, double epsilon, Placement placement) {
  Composed c("batch_norm", x.where(), placement);
  std::vector<Value> in = c.values({x, gain, bias, mean, variance});
  const Value &operand = in[0], &g = in[1], &b = in[2], &m = in[3], &v = in[4];
  check_norm(c, operand, {{"the gain", g}, {"the bias", b}, {"the mean", m}, {"the variance", v}}, epsilon);
  Value wide = c.wide(operand);
  int rank = wide.shape().rank();
  auto widened = [&](const Value& of_channels) { return by_channel(c, c.as(wide.dtype(), of_channels), rank); };
  Value centred = sub(c.arg(wide), c.arg(widened(m)), placement);
  return c.finished(scaled(c, centred, widened(v), epsilon, g, b, operand.dtype()));
}

Value group_norm(Arg x, int groups, Arg gain, Arg bias, double epsilon, Placement placement) {
  Composed c("group_norm", x.where(), placement);
  std::vector<Value> in = c.values({x, gain, bias});
  const Value &operand = in[0], &g = in[1], &b = in[2];
  check_norm(c, operand, {{"the gain", g}, {"the bias", b}}, epsilon);
  std::int64_t channels = operand.shape()[1];
  if (groups < 1 || channels % groups != 0) {
    c.fail(std::to_string(channels) + " channels are not " + std::to_string(groups) +
               " groups of one size: " + to_string(operand.type()),
           "pass a number that divides the channels");
  }
  Value wide = c.wide(operand);
  Value grouped = reshape(c.arg(wide), {keep(0), groups, -1});
  Value centred = sub(c.arg(grouped), c.arg(mean(c.arg(grouped), {2}, {.keep_axes = true}, placement)), placement);
  Value spread = squared_mean(c, centred, {2}, true);
  Value normed = mul(c.arg(centred), c.arg(inverse_deviation(c, spread, epsilon)), placement);
  int rank = wide.shape().rank();
  auto widened = [&](const Value& of_channels) { return by_channel(c, c.as(wide.dtype(), of_channels), rank); };
  Value y = mul(c.arg(reshape_like(c.arg(normed), c.arg(wide))), c.arg(widened(g)), placement);
  return c.finished(c.as(operand.dtype(), add(c.arg(y), c.arg(widened(b)), placement)));
}

Value masked_mean(Arg values, Arg mask, Placement placement) {
  Composed c("masked_mean", values.where(), placement);
  std::vector<Value> in = c.values({values, mask});
  c.expect_floats(in[0], "the first operand");
  if (in[1].dtype() != DType::boolean) c.fail("the mask is " + to_string(in[1].type()), "pass booleans");
  Value wide = c.wide(in[0]);
  Value kept = where(c.arg(in[1]), c.arg(wide), c.arg(0.0), placement);
  Value everywhere = broadcast_like(c.arg(c.as(wide.dtype(), in[1])), c.arg(wide), placement);
  Value count = maximum(c.arg(sum(c.arg(everywhere), {}, {}, placement)), c.arg(1.0), placement);
  return c.finished(c.as(in[0].dtype(), div(c.arg(sum(c.arg(kept), {}, {}, placement)), c.arg(count), placement)));
}

Value accuracy(Arg logits, Arg labels, Placement placement) {
  Composed c("accuracy", logits.where(), placement);
  std::vector<Value> in = c.values({logits, labels});
  return c.finished(mean(c.arg(cast(c.arg(right_rows(c, in[0], in[1])), f32, placement)), {}, {}, placement));
}

Value accuracy(Arg logits, Arg labels, Arg mask, Placement placement) {
  Composed c("accuracy", logits.where(), placement);
  std::vector<Value> in = c.values({logits, labels, mask});
  if (in[2].dtype() != DType::boolean) c.fail("the mask is " + to_string(in[2].type()), "pass booleans");
  check_broadcast(c, in[2], in[1], "the mask does not broadcast to the labels: ",
                  "give it the shape of the labels, with 1 where it is the same for all");
  const Value right = cast(c.arg(right_rows(c, in[0], in[1])), f32, placement);
  return c.finished(masked_mean(c.arg(right), c.arg(in[2]), placement));
}

Value attention(Arg q, Arg k, Arg v, Arg mask_or_bias, AttentionOptions options, Placement placement) {
  Composed c("attention", q.where(), placement);
  std::vector<Value> in = c.values({q, k, v, mask_or_bias});
  const Value &queries = in[0], &keys = in[1], &values = in[2], &extra = in[3];
  check_attention(c, queries, keys, values);
  bool is_mask = extra.dtype() == DType::boolean;
  if (!is_mask && extra.dtype() != queries.dtype())
    c.fail("the mask or bias is " + to_string(extra.type()), "pass booleans, or a bias of the dtype of q");
  if (options.scale == 0 && queries.shape().is_open(3))
    c.fail("the width is open: " + to_string(queries.type()), "pass the scale of the scores");
  double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(queries.shape()[3]));
  Value products = matmul(c.arg(queries), c.arg(keys), {.transpose_b = true}, placement);
  Value scores = mul(c.arg(products), c.arg(scale), placement);
  check_broadcast(c, extra, scores, "the mask or bias does not broadcast to the scores: ",
                  "give it the shape [batch, heads, queries, keys], with 1 where it is the same for all");
  if (!is_mask) scores = add(c.arg(scores), c.arg(extra), placement);
  // Booleans that broadcast to the scores: whether a query sees a key. Invalid: each query sees all keys.
  Value seen = is_mask ? extra : Value();
  if (options.causal) {
    Value row = unsqueeze(c.arg(arange(c.arg(queries), 2, i32, placement)), 1),
          column = arange(c.arg(keys), 2, i32, placement);
    Value ahead = sub(c.arg(dim(c.arg(keys), 2, placement)), c.arg(dim(c.arg(queries), 2, placement)), placement);
    Value is_past = less_equal(c.arg(column), c.arg(add(c.arg(row), c.arg(ahead), placement)), placement);
    seen = seen.valid() ? logical_and(c.arg(seen), c.arg(is_past), placement) : is_past;
  }
  auto weighted = [&](const Value& weights) {
    return c.finished(matmul(c.arg(weights), c.arg(values), MatmulOptions{}, placement));
  };
  if (!seen.valid()) return weighted(softmax(c.arg(scores), -1, placement));
  double hidden = -std::numeric_limits<double>::infinity();
  Value weights = softmax(c.arg(where(c.arg(seen), c.arg(scores), c.arg(hidden), placement)), -1, placement);
  // A query that sees nothing has a line of NaNs, which become zeros.
  return weighted(where(c.arg(seen), c.arg(weights), c.arg(0.0), placement));
}

}  // namespace graphsink
