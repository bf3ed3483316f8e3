#include "op_table.h"

#include <algorithm>
#include <cmath>

#include "op_reference_data.h"
#include "op_rows.h"

namespace graphsink::testing {

Operand indices(const Shape& shape, int limit) {
  Operand operand(shape);
  operand.limit = limit;
  return operand;
}

OpRow unary(std::string name, std::vector<DType> dtypes, Value (*op)(Arg, Placement), double (*f)(double)) {
  return {std::move(name),
          std::move(dtypes),
          kUnary,
          [=](const auto& in) { return op(in[0], {}); },
          [=](const Arrays& in) { return map(in[0], f); },
          true};
}

OpRow arithmetic(std::string name, std::vector<DType> dtypes, Value (*op)(Arg, Arg, Placement),
                 double (*f)(double, double)) {
  return {std::move(name),
          std::move(dtypes),
          kBinary,
          [=](const auto& in) { return op(in[0], in[1], {}); },
          [=](const Arrays& in) { return map(in[0], in[1], f); },
          true};
}

OpRow comparison(std::string name, std::vector<DType> dtypes, Value (*op)(Arg, Arg, Placement),
                 double (*f)(double, double)) {
  return coarse(without_grad(arithmetic(std::move(name), std::move(dtypes), op, f), kNoFloats));
}

OpRow positive(OpRow row) {
  row.is_positive = true;
  return row;
}

OpRow coarse(OpRow row) {
  row.is_coarse = true;
  return row;
}

OpRow without_grad(OpRow row) {
  row.has_grad = false;
  return row;
}

OpRow without_grad(OpRow row, std::string because) {
  row.has_grad = false;
  row.no_gradient_because = std::move(because);
  return row;
}

namespace {

OpRow cast_row(DType to) {
  // Negative integers wrap to u8: dtype_test.cpp.
  return {"cast",
          to == u8 ? std::vector<DType>{f32, f64, f16, bf16, u8, boolean} : kAll,
          kUnary,
          [=](const auto& in) { return cast(in[0], to); },
          [=](const Arrays& in) {
            return map(in[0], [=](double x) {
              if (to == DType::boolean) return double(x != 0);
              return to == DType::u8 && x < 0 ? 0.0 : is_float(to) ? x : std::trunc(x);
            });
          },
          is_float(to)};
}

OpRow matmul_row(bool ta, bool tb) {
  std::vector<Case> cases;
  struct Sizes {
    std::int64_t m, k, n;
  };
  for (auto [m, k, n] : {Sizes{2, 3, 4},
                         {1, 1, 1},
                         {0, 3, 2},
                         {3, 0, 2},
                         {3, 2, 0},
                         {1, 257, 1},
                         {37, 17, 41},
                         {5, 131, 3},
                         {260, 7, 5}})
    cases.push_back({ta ? Shape{k, m} : Shape{m, k}, tb ? Shape{n, k} : Shape{k, n}});
  return {"matmul",
          kFloats,
          cases,
          [=](const auto& in) {
            return matmul(in[0], in[1], {ta, tb});
          },
          [=](const Arrays& in) { return product(in[0], in[1], ta, tb); },
          true};
}

OpRow sum_row(std::vector<int> axes, bool keep_axes, std::vector<Case> cases) {
  return {"sum",
          kNumbers,
          std::move(cases),
          [=](const auto& in) { return sum(in[0], axes, {.keep_axes = keep_axes}); },
          [=](const Arrays& in) { return reduce(in[0], axes, keep_axes, false); },
          true};
}

OpRow mean_row(std::vector<int> axes, bool keep_axes, std::vector<Case> cases) {
  return {"mean",
          kFloats,
          std::move(cases),
          [=](const auto& in) { return mean(in[0], axes, {.keep_axes = keep_axes}); },
          [=](const Arrays& in) { return reduce(in[0], axes, keep_axes, true); },
          true};
}

OpRow reshape_row(const NewShape& to, const Shape& full, std::vector<Case> cases) {
  return {"reshape",
          kAll,
          std::move(cases),
          [=](const auto& in) { return reshape(in[0], to); },
          [=](const Arrays& in) { return with_shape(in[0], full); },
          true};
}

OpRow clamp_row(std::vector<DType> dtypes, double low, double high) {
  return {"clamp",
          std::move(dtypes),
          kUnary,
          [=](const auto& in) { return clamp(in[0], low, high); },
          [=](const Arrays& in) { return map(in[0], [=](double x) { return std::clamp(x, low, high); }); },
          true};
}

OpRow cross_entropy_row(const CrossEntropyOptions& options, DType targets) {
  return {"cross_entropy",
          kSingleAndDouble,
          kClasses,
          [=](const auto& in) { return cross_entropy(in[0], cast(in[1], targets), options); },
          [=](const Arrays& in) {
            Array losses = row_losses(in[0], in[1], options.ignore_index);
            return options.per_row ? losses : mean_of_counted(losses, in[1], options.ignore_index);
          },
          true};
}

}  // namespace

std::vector<OpRow> op_table() {
  std::vector<OpRow> rows{
      arithmetic("add", kNumbers, add, [](double a, double b) { return a + b; }),
      arithmetic("sub", kNumbers, sub, [](double a, double b) { return a - b; }),
      arithmetic("mul", kNumbers, mul, [](double a, double b) { return a * b; }),
      arithmetic("div", kFloats, div, [](double a, double b) { return a / b; }),
      unary("relu", kFloats, relu, [](double x) { return x > 0 ? x : 0; }),
      unary("tanh", kFloats, tanh, [](double x) { return std::tanh(x); }),
      unary("exp", kFloats, exp, [](double x) { return std::exp(x); }),
      unary("neg", kNumbers, neg, [](double x) { return -x; }),
      unary("abs", kFloats, abs, [](double x) { return std::abs(x); }),
      positive(unary("log", kFloats, log, [](double x) { return std::log(x); })),
      positive(unary("sqrt", kFloats, sqrt, [](double x) { return std::sqrt(x); })),
      positive(unary("rsqrt", kFloats, rsqrt, [](double x) { return 1 / std::sqrt(x); })),
      unary("sin", kFloats, sin, [](double x) { return std::sin(x); }),
      unary("cos", kFloats, cos, [](double x) { return std::cos(x); }),
      unary("sigmoid", kFloats, sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }),
      unary("silu", kFloats, silu, [](double x) { return x / (1 + std::exp(-x)); }),
      unary("gelu", kFloats, gelu,
            [](double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }),
      unary("erf", kFloats, erf, [](double x) { return std::erf(x); }),
      coarse(without_grad(unary("sign", kNumbers, sign, [](double x) { return double(x > 0) - double(x < 0); }),
                          kConstant)),
      without_grad(unary("floor", kFloats, floor, [](double x) { return std::floor(x); }), kConstant),
      without_grad(unary("ceil", kFloats, ceil, [](double x) { return std::ceil(x); }), kConstant),
      coarse(without_grad(unary("round", kFloats, round, [](double x) { return std::nearbyint(x); }), kConstant)),
      without_grad(unary("stop_gradient", kAll, stop_gradient, [](double x) { return x; }),
                   "Returns x, of any dtype, as a Value through which no gradient flows."),
      clamp_row(kSingleAndDouble, -0.7123, 1.1357),
      coarse(without_grad(clamp_row(kComparable, 1, 3))),
      coarse(without_grad(clamp_row({f32, f64, f16, bf16, i32, i64}, -1, 1))),
      positive(arithmetic("pow", kFloats, pow, [](double a, double b) { return std::pow(a, b); })),
      coarse(arithmetic("minimum", kNumbers, minimum, [](double a, double b) { return std::min(a, b); })),
      coarse(arithmetic("maximum", kNumbers, maximum, [](double a, double b) { return std::max(a, b); })),
      without_grad(unary("logical_not", {boolean}, logical_not, [](double x) { return double(x == 0); }), kNoFloats),
      comparison("logical_and", {boolean}, logical_and, [](double a, double b) { return double(a != 0 && b != 0); }),
      comparison("logical_or", {boolean}, logical_or, [](double a, double b) { return double(a != 0 || b != 0); }),
      comparison("logical_xor", {boolean}, logical_xor, [](double a, double b) { return double(a != b); }),
      comparison("not_equal", kAll, not_equal, [](double a, double b) { return double(a != b); }),
      {"where", kAll, kChoices, [](const auto& in) { return where(less(cast(in[0], f32), 0.5), in[1], in[2]); },
       [](const Arrays& in) { return choose(in[0], in[1], in[2]); }, true},
      {"masked_mean",
       kFloats,
       {{{3, 2}, {3, 2}}, {{3, 1}, {3, 4}}, {Shape{}, {2, 5}}, {{257}, {257}}, {{0}, {0}}},
       [](const auto& in) { return masked_mean(in[1], less(cast(in[0], f32), 0.5)); },
       [](const Arrays& in) { return mean_where_less(in[0], in[1]); },
       true},
      comparison("less", kComparable, less, [](double a, double b) { return double(a < b); }),
      comparison("less_equal", kComparable, less_equal, [](double a, double b) { return double(a <= b); }),
      comparison("greater", kComparable, greater, [](double a, double b) { return double(a > b); }),
      comparison("greater_equal", kComparable, greater_equal, [](double a, double b) { return double(a >= b); }),
      comparison("equal", kAll, equal, [](double a, double b) { return double(a == b); }),
      cast_row(f32),
      cast_row(f64),
      cast_row(f16),
      cast_row(bf16),
      cast_row(i32),
      cast_row(i64),
      cast_row(u8),
      cast_row(boolean),
      matmul_row(false, false),
      matmul_row(true, false),
      matmul_row(false, true),
      matmul_row(true, true),
      // Thread, warp and block for each sum, several blocks for one, and sums of nothing.
      sum_row({}, false, {{{2, 3}}, {{0}}, {{3, 0}}, {Shape{}}, {{1}}, {{257}}, {{1031}}, {{3, 40000}}}),
      sum_row({1}, false,
              {{{2, 3}}, {{0, 3}}, {{3, 0}}, {{1, 1}}, {{1031, 5}}, {{5, 1031}}, {{1031, 67}}, {{3, 40000}}}),
      sum_row({0}, true, {{{2, 3}}, {{0, 3}}, {{3, 0}}, {{1, 1}}, {{1031, 5}}, {{5, 1031}}, {{67, 41}}, {{33, 8200}}}),
      sum_row({0, -1}, false, {{{2, 3, 4}}, {{0, 3, 4}}, {{1, 1, 1}}, {{17, 5, 31}}, {{131, 2, 3}}}),
      sum_row({-2}, false, {{{2, 3, 4}}, {{2, 0, 4}}, {{7, 257, 33}}}),
      mean_row({}, false, {{{2, 3}}, {Shape{}}, {{1}}, {{257}}, {{1031}}, {{40003}}}),
      mean_row({-1}, true, {{{2, 3}}, {{0, 3}}, {{1, 1}}, {{257, 3}}, {{3, 1031}}}),
      mean_row({0}, false, {{{2, 3}}, {{1, 1}}, {{257, 3}}, {{3, 1031}}}),
      {"broadcast_like", kAll, kBroadcasts, [](const auto& in) { return broadcast_like(in[0], in[1]); },
       [](const Arrays& in) { return broadcast_to(in[0], in[1].shape); }, true},
      {"sum_like", kNumbers, kSums, [](const auto& in) { return sum_like(in[0], in[1]); },
       [](const Arrays& in) { return sum_to(in[0], in[1].shape); }, true},
      reshape_row({6}, {6}, {{{2, 3}}, {{6}}}),
      reshape_row({-1, 3}, {0, 3}, {{{0}}}),
      reshape_row({}, {}, {{{1}}, {{1, 1}}}),
      reshape_row({-1, 37}, {41, 37}, {{{37, 41}}}),
      reshape_row({keep(0), 2, -1}, {3, 2, 4}, {{{3, 8}}, {{3, 2, 4}}}),
      reshape_row({keep(0), 2, -1}, {0, 2, 4}, {{{0, 8}}}),
      reshape_row({-1, keep(-1), keep(0)}, {6, 5, 4}, {{{4, 6, 5}}}),
      without_grad(
          {"dim",
           kAll,
           {{{2, 3}}, {{0, 3}}, {{1031, 1}}},
           [](const auto& in) { return dim(in[0], -2); },
           [](const Arrays& in) { return generate({}, [&](Shape) { return static_cast<double>(in[0].shape[0]); }); }},
          kNoFloats),
      {"reshape_like", kAll, kReshapes, [](const auto& in) { return reshape_like(in[0], in[1]); },
       [](const Arrays& in) { return with_shape(in[0], in[1].shape); }, true},
      {"transpose", kAll, kMatrices, [](const auto& in) { return transpose(in[0]); },
       [](const Arrays& in) { return swap_last(in[0]); }, true},
      {"embedding", kFloats, kLookups, [](const auto& in) { return embedding(in[0], in[1]); },
       [](const Arrays& in) { return rows_of(in[0], in[1]); }, true},
      cross_entropy_row({}, i32),
      cross_entropy_row({.ignore_index = 1}, i64),
      cross_entropy_row({.per_row = true}, i64),
      cross_entropy_row({.ignore_index = 0, .per_row = true}, i32),
      unary("check_finite", kFloats, check_finite, [](double x) { return x; }),
  };
  add_data_rows(rows);
  add_fold_rows(rows);
  add_order_rows(rows);
  add_text_rows(rows);
  return rows;
}

}  // namespace graphsink::testing
