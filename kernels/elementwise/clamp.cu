// clamp and its gradient, each one kernel.
#include <cmath>
#include <utility>

#include "base/number_text.h"
#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/support/elementwise.h"

namespace graphsink {
namespace {

struct ClampAttrs {
  double low, high;
  static auto fields(auto& s) { return std::tie("low", s.low, "high", s.high); }
};

// Operands: a is x, b and c are the bounds. The low one is at most the high one, and a NaN in x stays one.
TERNARY_EXPRESSION(Clamp, a < b ? b : c < a ? c : a);
// Operands: the gradient a, x, and the result. Returns a where x is within the bounds, on them included, or a NaN.
TERNARY_EXPRESSION(ClampGrad, b == c || b != b ? a : T(0));

Value clamp_formula(const Value& a, const Value& x, const Value& y) {
  return where(logical_or(equal(x, y), not_equal(x, x)), a, 0.0);
}
const OpDef clamp_grad_op = elementwise_op<ClampGrad, 3, float, double>("clamp_grad", formula_of<clamp_formula>);

std::vector<Value> clamp_grad(const GradArgs& a) {
  Value x = emit(clamp_grad_op, {Arg(a.grads[0], a.where), a.inputs[0], a.outputs[0]})[0];
  return {x, Value(), Value()};
}

constexpr OpDef kClamp =
    elementwise_op<Clamp, 3, float, double, std::int32_t, std::int64_t, std::uint8_t>("clamp", clamp_grad);

void infer_clamp(InferArgs& a) {
  const auto& [low, high] = a.attrs<ClampAttrs>();
  for (auto [name, bound] : {std::pair{"lower", low}, std::pair{"upper", high}})
    if (std::isnan(bound)) a.fail(std::string("the ") + name + " bound is nan", "pass a number");
  if (low > high)
    a.fail("the bounds are " + number_text(low) + " and " + number_text(high), "pass the lower one first");
  kClamp.infer(a);
}

constexpr OpDef with_bounds(OpDef op) {
  op.infer = infer_clamp;
  return op;
}
const OpDef clamp_op = with_bounds(kClamp);

}  // namespace

Value clamp(Arg x, double low, double high, Placement placement) {
  Arg lower(low, x.where()), upper(high, x.where());
  return emit(clamp_op, {x, lower, upper}, ClampAttrs{low, high}, placement)[0];
}

std::span<const FileOp> clamp_file_ops() {
  static constexpr FileOp ops[] = {file_op<ClampAttrs>(clamp_op), file_op(clamp_grad_op)};
  return ops;
}

}  // namespace graphsink
