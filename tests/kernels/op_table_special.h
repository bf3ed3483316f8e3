// Rows of the op table for zeros of both signs, infinities, NaNs, denormals and the ends of the ranges: element-wise
// ops, their exact results and their exact slopes. Part of op_table.h.
#pragma once

#include "tests/op_table/op_reference_order.h"
#include "tests/op_table/op_rows.h"

namespace graphsink::testing {

// An op on operands that are written out, and the gradients of sum(weight * op).
struct SpecialRow {
  std::string name;  // in ops.h
  std::vector<DType> dtypes;
  std::function<Arrays(DType)> operands;
  std::function<Value(const std::vector<Value>&)> apply;
  std::function<Array(const Arrays&)> reference;
  std::function<Arrays(const Arrays&, const Array& weight)> gradients = {};  // none: the op has none
  int indices = -1;                                                          // the operand that is of i32
  bool has_sums = false;  // gradients are sums, as inexact as the largest of all
};

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Limits {
  double denormal, largest;
};
inline Limits limits_of(DType dtype) {
  if (dtype == f16) return {0x1p-24, 65504};
  if (dtype == bf16) return {0x1p-133, 0x1.fep127};
  if (dtype == f32) return {std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max()};
  return {std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max()};
}

inline std::vector<double> specials(DType dtype) {
  auto [denormal, largest] = limits_of(dtype);
  return {0.0,      -0.0,      1.0,     -1.0,     0.5,       -2.0,       12.0, -20.0,
          denormal, -denormal, largest, -largest, kInfinite, -kInfinite, kNan};
}

inline Array vector_of(const std::vector<double>& values) {
  Array result(Shape{static_cast<std::int64_t>(values.size())});
  result.at = values;
  return result;
}

// Each special value, each pair of two, each triple of three.
inline Arrays combinations(DType dtype, std::size_t operands) {
  std::vector<std::vector<double>> columns(operands);
  std::vector<double> values = specials(dtype);
  std::size_t count = 1;
  for (std::size_t i = 0; i < operands; ++i) count *= values.size();
  for (std::size_t k = 0; k < count; ++k)
    for (std::size_t i = 0, rest = k; i < operands; ++i, rest /= values.size())
      columns[i].push_back(values[rest % values.size()]);
  Arrays result;
  for (const auto& column : columns) result.push_back(vector_of(column));
  return result;
}

using Slope = double (*)(double g, double x, double y);             // g * dy/dx
using Slope2 = double (*)(double g, double a, double b, double y);  // g * dy/da, or g * dy/db
using Apply1 = Value (*)(Arg, Placement);
using Apply2 = Value (*)(Arg, Arg, Placement);

inline SpecialRow special(std::string name, Apply1 op, double (*f)(double), Slope slope) {
  return {std::move(name),
          kFloats,
          [](DType dtype) { return combinations(dtype, 1); },
          [=](const auto& in) { return op(in[0], {}); },
          [=](const Arrays& in) { return map(in[0], f); },
          [=](const Arrays& in, const Array& weight) {
            Array g(in[0].shape);
            for (std::int64_t i = 0; i < g.shape.size(); ++i) g[i] = slope(weight[i], in[0][i], f(in[0][i]));
            return Arrays{g};
          }};
}

inline SpecialRow special(std::string name, Apply2 op, double (*f)(double, double), Slope2 left, Slope2 right) {
  return {std::move(name),
          kFloats,
          [](DType dtype) { return combinations(dtype, 2); },
          [=](const auto& in) { return op(in[0], in[1], {}); },
          [=](const Arrays& in) { return map(in[0], in[1], f); },
          [=](const Arrays& in, const Array& weight) {
            Array a(in[0].shape), b(in[0].shape);
            for (std::int64_t i = 0; i < a.shape.size(); ++i) {
              double x = in[0][i], y = in[1][i], z = f(x, y);
              a[i] = left(weight[i], x, y, z);
              b[i] = right(weight[i], x, y, z);
            }
            return Arrays{a, b};
          }};
}

// A comparison, whose result is boolean and has no gradient.
inline SpecialRow special(std::string name, Apply2 op, double (*f)(double, double)) {
  SpecialRow row = special(std::move(name), op, f, nullptr, nullptr);
  row.gradients = {};
  return row;
}

// The share of the gradient that an operand has, where a NaN counts as chosen.
inline double share_of_chosen(double g, bool is_own, bool is_other) { return !is_own ? 0 : is_other ? g / 2 : g; }
inline double exact_minimum(double a, double b) { return a < b || std::isnan(a) ? a : b; }
inline double exact_maximum(double a, double b) { return a > b || std::isnan(a) ? a : b; }
inline bool is_smaller(double a, double b) { return a <= b || std::isnan(a); }
inline bool is_larger(double a, double b) { return a >= b || std::isnan(a); }
inline double exact_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double exact_gelu_tanh(double x) { return std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)); }
inline double exact_gelu_slope(double x) {
  double t = exact_gelu_tanh(x), inner = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  return t * t == 1 ? 0.5 * (1 + t) : 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
}
inline double exact_silu_slope(double x) {
  double s = exact_sigmoid(x);
  return s * (1 + x * (1 - s));
}
// -(g * a / b) / b, where nothing overflows on the way.
inline double exact_div_slope(double g, double a, double b) {
  return static_cast<double>(-(static_cast<long double>(g) * (static_cast<long double>(a / b) / b)));
}

// The slope is the difference of two numbers that may be nearly equal.
inline SpecialRow cancelling(SpecialRow row) {
  row.has_sums = true;
  return row;
}

inline std::vector<SpecialRow> special_elementwise_rows() {
  auto both = [](double g, double, double, double) { return g; };
  auto none = [](double, double, double) { return 0.0; };
  return {
      special(
          "neg", neg, [](double x) { return -x; }, [](double g, double, double) { return -g; }),
      special(
          "abs", abs, [](double x) { return std::abs(x); },
          [](double g, double x, double) {
            return x > 0 ? g : x < 0 ? -g : x == 0 ? 0 : x;
          }),
      special(
          "exp", exp, [](double x) { return std::exp(x); }, [](double g, double, double y) { return g * y; }),
      special(
          "log", log, [](double x) { return std::log(x); }, [](double g, double x, double) { return g / x; }),
      special(
          "sqrt", sqrt, [](double x) { return std::sqrt(x); }, [](double g, double, double y) { return g * 0.5 / y; }),
      special(
          "rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); },
          [](double g, double, double y) { return g * -0.5 * y * y * y; }),
      special(
          "sin", sin, [](double x) { return std::sin(x); }, [](double g, double x, double) { return g * std::cos(x); }),
      special(
          "cos", cos, [](double x) { return std::cos(x); },
          [](double g, double x, double) { return -(g * std::sin(x)); }),
      cancelling(special(
          "tanh", tanh, [](double x) { return std::tanh(x); },
          [](double g, double, double y) { return g * (1 - y * y); })),
      special(
          "relu", relu, [](double x) { return x < 0 ? 0 : x; },
          [](double g, double x, double) { return x <= 0 ? 0 : g; }),
      cancelling(
          special("sigmoid", sigmoid, exact_sigmoid, [](double g, double, double y) { return g * y * (1 - y); })),
      cancelling(special(
          "silu", silu, [](double x) { return x * exact_sigmoid(x); },
          [](double g, double x, double) { return g * exact_silu_slope(x); })),
      cancelling(special(
          "gelu", gelu, [](double x) { return 0.5 * x * (1 + exact_gelu_tanh(x)); },
          [](double g, double x, double) { return g * exact_gelu_slope(x); })),
      special(
          "erf", erf, [](double x) { return std::erf(x); },
          [](double g, double x, double) { return g * (2 / std::sqrt(M_PI)) * std::exp(-x * x); }),
      special(
          "sign", sign, [](double x) { return x > 0   ? 1
                                              : x < 0 ? -1
                                                      : x; }, none),
      special(
          "floor", floor, [](double x) { return std::floor(x); }, none),
      special(
          "ceil", ceil, [](double x) { return std::ceil(x); }, none),
      special(
          "round", round, [](double x) { return std::nearbyint(x); }, none),
      special(
          "stop_gradient", stop_gradient, [](double x) { return x; }, none),
      special(
          "clamp", [](Arg x, Placement placement) { return clamp(x, -1, 0.5, placement); },
          [](double x) { return x < -1    ? -1
                                : x > 0.5 ? 0.5
                                          : x; },
          [](double g, double x, double) { return x < -1 || x > 0.5 ? 0 : g; }),
      special(
          "clamp", [](Arg x, Placement placement) { return clamp(x, -kInfinite, kInfinite, placement); },
          [](double x) { return x; }, [](double g, double, double) { return g; }),
      special(
          "add", add, [](double a, double b) { return a + b; }, both, both),
      special(
          "sub", sub, [](double a, double b) { return a - b; }, both,
          [](double g, double, double, double) { return -g; }),
      special(
          "mul", mul, [](double a, double b) { return a * b; },
          [](double g, double, double b, double) { return g * b; },
          [](double g, double a, double, double) { return g * a; }),
      special(
          "div", div, [](double a, double b) { return a / b; },
          [](double g, double, double b, double) { return g / b; },
          [](double g, double a, double b, double) { return exact_div_slope(g, a, b); }),
      special(
          "minimum", minimum, exact_minimum,
          [](double g, double a, double b, double) { return share_of_chosen(g, is_smaller(a, b), is_smaller(b, a)); },
          [](double g, double a, double b, double) { return share_of_chosen(g, is_smaller(b, a), is_smaller(a, b)); }),
      special(
          "maximum", maximum, exact_maximum,
          [](double g, double a, double b, double) { return share_of_chosen(g, is_larger(a, b), is_larger(b, a)); },
          [](double g, double a, double b, double) { return share_of_chosen(g, is_larger(b, a), is_larger(a, b)); }),
      special("less", less, [](double a, double b) { return double(a < b); }),
      special("less_equal", less_equal, [](double a, double b) { return double(a <= b); }),
      special("greater", greater, [](double a, double b) { return double(a > b); }),
      special("greater_equal", greater_equal, [](double a, double b) { return double(a >= b); }),
      special("equal", equal, [](double a, double b) { return double(a == b); }),
      special("not_equal", not_equal, [](double a, double b) { return double(a != b); }),
  };
}

// Powers, where the gradient of the base is that of x -> x^b, and of the exponent 0 at 0^b unless b < 0.
inline SpecialRow special_pow_row() {
  SpecialRow row = special(
      "pow", pow, [](double a, double b) { return std::pow(a, b); },
      [](double g, double a, double b, double) { return g * (b == 0 ? 0 : b * std::pow(a, b - 1)); },
      [](double g, double a, double, double y) { return g * (a == 0 && y <= 1 ? 0 : y * std::log(a)); });
  row.operands = [](DType) {
    return Arrays{vector_of({0, 0, 0, 0, -0.0, 2, 2, -2, -2, kInfinite, kInfinite, 2, 0.5, kNan, 1, -8}),
                  vector_of({0, 1, 2, -1, 3, kInfinite, -kInfinite, 3, 2, 0, -1, kNan, 10, 0, 3, 0.5})};
  };
  return row;
}

}  // namespace graphsink::testing
