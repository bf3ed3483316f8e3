// less, less_equal, greater, greater_equal, equal: element-wise to boolean, with broadcasting. No gradient passes.
#include "kernels/elementwise.h"

namespace graphsink {
namespace {

BINARY_EXPRESSION(Less, a < b);
BINARY_EXPRESSION(LessEqual, a <= b);
BINARY_EXPRESSION(Greater, a > b);
BINARY_EXPRESSION(GreaterEqual, a >= b);
BINARY_EXPRESSION(Equal, a == b);

const OpDef less_op = elementwise_op<Less, 2, float, double, std::int32_t>("less");
const OpDef less_equal_op = elementwise_op<LessEqual, 2, float, double, std::int32_t>("less_equal");
const OpDef greater_op = elementwise_op<Greater, 2, float, double, std::int32_t>("greater");
const OpDef greater_equal_op = elementwise_op<GreaterEqual, 2, float, double, std::int32_t>("greater_equal");
const OpDef equal_op = elementwise_op<Equal, 2, float, double, std::int32_t, bool>("equal");

}  // namespace

Value less(Arg a, Arg b, Label label) { return emit(less_op, {a, b}, {}, label)[0]; }
Value less_equal(Arg a, Arg b, Label label) { return emit(less_equal_op, {a, b}, {}, label)[0]; }
Value greater(Arg a, Arg b, Label label) { return emit(greater_op, {a, b}, {}, label)[0]; }
Value greater_equal(Arg a, Arg b, Label label) { return emit(greater_equal_op, {a, b}, {}, label)[0]; }
Value equal(Arg a, Arg b, Label label) { return emit(equal_op, {a, b}, {}, label)[0]; }

}  // namespace graphsink
