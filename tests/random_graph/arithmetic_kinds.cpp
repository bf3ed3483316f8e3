// Kinds of entries that compute: element-wise ops, products, norms, windows, random numbers.

#include "base/at.h"
#include "site.h"

namespace graphsink::testing {
namespace {

template <Value (*op)(Arg, Placement)>
Values unary(Site& s) {
  return {op(s.floating(0), s.placement)};
}
template <Value (*op)(Arg, Arg, Placement)>
Values binary(Site& s) {
  Value a = s.number(0);
  return {s.tame(op(a, s.beside(1, a), s.placement))};
}
template <Value (*op)(Arg, Arg, Placement)>
Values compare(Site& s) {
  Value a = s.number(0);
  return {op(a, s.beside(1, a), s.placement)};
}
template <Value (*op)(Arg, Arg, Placement)>
Values logical(Site& s) {
  Value a = Site::as(s.any(0), boolean);
  return {op(a, s.beside(1, a), s.placement)};
}

// --- products, windows

Values product(Site& s) {
  Value a = s.matrices(0);
  std::int64_t k = a.shape()[-1], n = 1 + s.random.below(4);
  MatmulOptions options;
  if (s.random.chance(30)) {
    options.transpose_a = true;
    k = a.shape()[-2];
  }
  options.transpose_b = s.random.chance(30);
  if (is_half(a.dtype()) && s.random.chance(30)) options.out = f32;
  Shape shape;
  if (s.random.chance(50))
    for (int d = 0; d + 2 < a.shape().rank(); ++d) shape.push_back(s.random.chance(70) ? a.shape()[d] : 1);
  shape.push_back(options.transpose_b ? n : k);
  shape.push_back(options.transpose_b ? k : n);
  Value product = matmul(a, Site::fit(Site::as(s.any(1), a.dtype()), shape), options, s.placement);
  if (s.random.chance(40)) product = add(product, s.vector(2, product.dtype(), n), s.placement);
  return {s.random.chance(50) ? relu(s.tame(product), s.placement) : s.tame(product)};
}

Values convolution(Site& s) {
  Value x = s.real(0);
  bool grouped = s.random.chance(30);
  x = Site::fit(x, {1 + s.random.below(2), 2, 4, 3});
  Value w = Site::fit(Site::as(s.any(1), x.dtype()), {2, grouped ? 1 : 2, 2, 2});
  Conv2dOptions options;
  options.padding = {s.random.below(2), s.random.below(2)};
  options.stride = {1 + s.random.below(2), 1};
  options.groups = grouped ? 2 : 1;
  return {s.tame(conv2d(x, w, options, s.placement))};
}
Value image(Site& s) {
  Value x = s.real(0);
  return x.shape().rank() < 2 || x.shape()[-1] < 2 || x.shape()[-2] < 2 ? Site::fit(x, {2, 3, 4}) : x;
}

// An operand of attention, [1, 2, time, 4]: by itself, or a part of a larger tensor, in another order.
Value heads(Site& s, const Value& x, std::int64_t time) {
  switch (s.random.below(4)) {
    case 0:
      return permute(Site::fit(x, {1, time, 2, 4}), {0, 2, 1, 3}, s.placement);
    case 1: {
      Value part = split(Site::fit(x, {1, time, 24}), 3, -1, s.placement)[at(s.random.below(3))];
      return permute(reshape(part, {1, time, 2, 4}), {0, 2, 1, 3}, s.placement);
    }
    case 2: {
      Value parts = permute(Site::fit(x, {1, time, 2, 2, 4}), {2, 0, 3, 1, 4}, s.placement);
      std::int64_t first = s.random.below(2);
      return reshape(slice(parts, {first}, {first + 1}, {}, s.placement), {1, 2, time, 4});
    }
    default:
      return Site::fit(x, {1, 2, time, 4});
  }
}

Values attend(Site& s) {
  Value x = s.real(0);
  Value q = heads(s, x, 3);
  Value k = heads(s, Site::as(s.any(1), x.dtype()), 4);
  Value v = heads(s, Site::as(s.any(2), x.dtype()), 4);
  const bool is_causal = s.random.chance(50);
  Value y;
  if (s.entry.wide != 0) {  // each query sees a key at least
    Tensor mask = Tensor::full(boolean, {3, 4}, 1);
    for (std::size_t i = 0; i < 12; ++i) mask.as<bool>()[i] = i % 4 == 0 || s.wide.chance(60);
    y = s.hidden([&] { return attention(q, k, v, s.building.graph.constant(mask), {}, s.placement); });
  } else {
    y = attention(q, k, v, {.causal = is_causal}, s.placement);
  }
  return {s.random.chance(50) ? permute(y, {0, 2, 1, 3}, s.placement) : y};
}

constexpr Family kU = Family::unary, kB = Family::binary, kC = Family::choice;

const Kind kArithmeticKinds[] = {
    {"neg", kU, 1, 3, unary<neg>},
    {"abs", kU, 1, 2, unary<abs>},
    {"exp", kU, 1, 2, [](Site& s) { return Values{s.tame(exp(s.floating(0), s.placement))}; }},
    {"log", kU, 1, 2, [](Site& s) { return Values{log(abs(s.floating(0)) + 0.25, s.placement)}; }},
    {"sqrt", kU, 1, 2, [](Site& s) { return Values{sqrt(abs(s.floating(0)), s.placement)}; }},
    {"rsqrt", kU, 1, 2, [](Site& s) { return Values{rsqrt(abs(s.floating(0)) + 0.5, s.placement)}; }},
    {"sin", kU, 1, 3, unary<sin>},
    {"cos", kU, 1, 3, unary<cos>},
    {"tanh", kU, 1, 4, unary<tanh>},
    {"relu", kU, 1, 4, unary<relu>},
    {"sigmoid", kU, 1, 3, unary<sigmoid>},
    {"silu", kU, 1, 3, unary<silu>},
    {"gelu", kU, 1, 3, unary<gelu>},
    {"erf", kU, 1, 1, unary<erf>},
    {"sign", kU, 1, 1, unary<sign>},
    {"floor", kU, 1, 1, unary<floor>},
    {"round", kU, 1, 1, unary<round>},
    {"clamp", kU, 1, 1, [](Site& s) { return Values{clamp(s.number(0), -2, 3, s.placement)}; }},
    {"add", kB, 2, 6, binary<add>},
    {"sub", kB, 2, 4, binary<sub>},
    {"mul", kB, 2, 4, binary<mul>},
    {"div", kB, 2, 2,
     [](Site& s) {
       Value a = s.floating(0);
       return Values{s.tame(div(a, abs(s.beside(1, a)) + 0.5, s.placement))};
     }},
    {"minimum", kB, 2, 2, binary<minimum>},
    {"maximum", kB, 2, 2, binary<maximum>},
    {"pow", kB, 2, 1,
     [](Site& s) {
       Value a = s.floating(0);
       return Values{pow(abs(a) * 0.25 + 0.5, tanh(s.beside(1, a)), s.placement)};
     }},
    {"less", kC, 2, 1, compare<less>},
    {"less_equal", kC, 2, 1, compare<less_equal>},
    {"greater", kC, 2, 1, compare<greater>},
    {"greater_equal", kC, 2, 1, compare<greater_equal>},
    {"equal", kC, 2, 1, compare<equal>},
    {"not_equal", kC, 2, 1, compare<not_equal>},
    {"logical_and", kC, 2, 1, logical<logical_and>},
    {"logical_or", kC, 2, 1, logical<logical_or>},
    {"logical_xor", kC, 2, 1, logical<logical_xor>},
    {"logical_not", kC, 1, 1, [](Site& s) { return Values{logical_not(Site::as(s.any(0), boolean), s.placement)}; }},
    {"where", kC, 3, 4,
     [](Site& s) {
       Value a = s.any(1);
       Value b = s.beside(2, a);
       Value condition = Site::as(s.any(0), boolean);
       return Values{where(Site::fit(condition, a.shape()), a, b, s.placement)};
     }},
    {"cast", Family::cast, 1, 5, [](Site& s) { return Values{Site::as(s.any(0), s.dtype())}; }},
    {"matmul", Family::product, 3, 7, product},
    {"attention", Family::product, 3, 1, attend},
    {"conv2d", Family::window, 2, 1, convolution},
    {"max_pool2d", Family::window, 1, 1,
     [](Site& s) {
       return Values{max_pool2d(image(s), {2, 2}, {.stride = {1, 1}}, s.placement)};
     }},
    {"avg_pool2d", Family::window, 1, 1,
     [](Site& s) {
       return Values{avg_pool2d(image(s), {2, 2}, {.padding = {1, 0}}, s.placement)};
     }},
    {"softmax", Family::softmax, 1, 2,
     [](Site& s) {
       Value x = Site::with_axes(s.floating(0));
       return Values{softmax(x, s.axis(x), s.placement)};
     }},
    {"log_softmax", Family::softmax, 1, 1,
     [](Site& s) {
       Value x = Site::with_axes(s.floating(0));
       return Values{s.tame(log_softmax(x, s.axis(x), s.placement))};
     }},
    {"layer_norm", Family::softmax, 3, 2,
     [](Site& s) {
       Value x = Site::with_axes(s.real(0));
       std::int64_t n = x.shape()[-1];
       return Values{s.tame(layer_norm(x, s.vector(1, x.dtype(), n), s.vector(2, x.dtype(), n), 1e-2, s.placement))};
     }},
    {"rms_norm", Family::softmax, 2, 1,
     [](Site& s) {
       Value x = Site::with_axes(s.real(0));
       return Values{s.tame(rms_norm(x, s.vector(1, x.dtype(), x.shape()[-1]), 1e-2, s.placement))};
     }},
    {"cross_entropy", Family::softmax, 2, 1,
     [](Site& s) {
       CrossEntropyOptions options{.per_row = s.random.chance(40)};
       if (s.random.chance(40)) options.ignore_index = 5;  // none of them, or all would be NaN
       Value targets = s.indices(1, 4, {3});
       if (s.random.chance(40)) targets = cast(targets, i64);
       return Values{s.tame(cross_entropy(Site::fit(s.real(0), {3, 4}), targets, options, s.placement))};
     }},
    {"random_uniform", Family::random, 1, 2,
     [](Site& s) { return Values{random_uniform(s.real(0), -2, 2, s.placement)}; }},
    {"random_normal", Family::random, 1, 1,
     [](Site& s) { return Values{s.tame(random_normal(s.real(0), 0, 1, s.placement))}; }},
    {"randint", Family::random, 1, 1,
     [](Site& s) { return Values{randint(s.any(0), -5, 20, s.random.chance(50) ? i32 : i64, s.placement)}; }},
    {"bernoulli", Family::random, 1, 1, [](Site& s) { return Values{bernoulli(sigmoid(s.real(0)), s.placement)}; }},
    {"dropout", Family::random, 1, 2, [](Site& s) { return Values{s.tame(dropout(s.real(0), 0.3, s.placement))}; }},
};

}  // namespace

std::span<const Kind> arithmetic_kinds() { return kArithmeticKinds; }

}  // namespace graphsink::testing
