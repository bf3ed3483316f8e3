// Rows of the op table: reductions of other kinds than sums and extremes.
#include <cmath>

#include "op_reference_order.h"
#include "op_rows.h"

namespace graphsink::testing {

namespace {

using Group = std::vector<double>;

// Thread, warp and block for each element, several blocks for one, and elements of nothing.
struct Axes {
  std::vector<int> axes;
  bool keep_axes;
  std::vector<Case> cases;
};
const std::vector<Axes> kAxes{{{}, false, {{{2, 3}}, {Shape{}}, {{1}}, {{257}}, {{1031}}}},
                              {{1}, false, {{{2, 3}}, {{0, 3}}, {{1, 1}}, {{1031, 5}}, {{5, 1031}}, {{1031, 37}}}},
                              {{0, -1}, true, {{{2, 3, 4}}, {{17, 5, 31}}}}};
// These have no variance.
const std::vector<Case> kNothing{{{0}}, {{3, 0}}};

double product_of(const Group& group) {
  double product = 1;
  for (double x : group) product *= x;
  return product;
}
double log_sum_exp_of(const Group& group) {
  double sum = 0;
  for (double x : group) sum += std::exp(x);
  return std::log(sum);
}
double any_of(const Group& group) {
  double any = 0;
  for (double x : group) any = std::max(any, x);
  return any;
}
double all_of(const Group& group) {
  double all = 1;
  for (double x : group) all = std::min(all, x);
  return all;
}
double variance_of(const Group& group, double correction) {
  auto count = static_cast<double>(group.size());
  double mean = 0, squares = 0;
  for (double x : group) mean += x / count;
  for (double x : group) squares += (x - mean) * (x - mean);
  return squares / (count - correction);
}

OpRow fold_row(std::string name, std::vector<DType> dtypes, const Axes& axes, const std::vector<Case>& more,
               Value (*op)(Arg, graphsink::Axes, ReduceOptions, Placement), double (*f)(const Group&)) {
  std::vector<Case> cases = axes.cases;
  for (const Case& operands : more)
    if (axes.axes.empty()) cases.push_back(operands);
  return {std::move(name),
          std::move(dtypes),
          std::move(cases),
          [=, axes = axes.axes, keep = axes.keep_axes](const auto& in) { return op(in[0], axes, {keep}, {}); },
          [=, axes = axes.axes, keep = axes.keep_axes](const Arrays& in) { return folded(in[0], axes, keep, f); },
          true};
}

OpRow var_row(const Axes& axes, double correction, const std::vector<Case>& cases) {
  return {
      "var",
      kFloats,
      cases,
      [=](const auto& in) { return var(in[0], axes.axes, {.keep_axes = axes.keep_axes, .correction = correction}); },
      [=](const Arrays& in) {
        return folded(in[0], axes.axes, axes.keep_axes,
                      [=](const Group& group) { return variance_of(group, correction); });
      },
      true};
}

}  // namespace

void add_fold_rows(std::vector<OpRow>& rows) {
  std::vector<Case> many = kNothing;
  many.push_back({{1, 33000}});
  for (const Axes& axes : kAxes) {
    rows.push_back(fold_row("logsumexp", kFloats, axes, many, logsumexp, log_sum_exp_of));
    rows.push_back(without_grad(fold_row("any", {boolean}, axes, many, any, any_of), kNoFloats));
    rows.push_back(without_grad(fold_row("all", {boolean}, axes, many, all, all_of), kNoFloats));
    rows.push_back(var_row(axes, 0, axes.cases));
    // Some elements are zero: their gradients are products of the others.
    rows.push_back(coarse(fold_row("prod", kNumbers, axes, kNothing, prod, product_of)));
  }
  rows.push_back(fold_row("prod", kSingleAndDouble, kAxes[0], {}, prod, product_of));
  // More products than a grid has blocks.
  rows.push_back(coarse(fold_row("prod", {f32}, {{1}, false, {{{4099, 3}}}}, {}, prod, product_of)));
  rows.push_back(coarse(fold_row("prod", {f32}, kAxes[0], {{{1, 33000}}}, prod, product_of)));
  rows.push_back(var_row(kAxes[2], 1, kAxes[2].cases));
  rows.push_back(var_row(kAxes[0], 1, {{{2, 3}}, {{257}}}));
}

}  // namespace graphsink::testing
