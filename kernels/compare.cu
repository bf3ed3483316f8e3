// Comparisons and logical operations: element-wise to boolean, with broadcasting. No gradient passes.
#include "kernels/elementwise.h"

namespace graphsink {
namespace {

BINARY_EXPRESSION(Less, a < b);
BINARY_EXPRESSION(LessEqual, a <= b);
BINARY_EXPRESSION(Greater, a > b);
BINARY_EXPRESSION(GreaterEqual, a >= b);
BINARY_EXPRESSION(Equal, a == b);
BINARY_EXPRESSION(NotEqual, a != b);
BINARY_EXPRESSION(LogicalAnd, a&& b);
BINARY_EXPRESSION(LogicalOr, a || b);
BINARY_EXPRESSION(LogicalXor, a != b);

const OpDef less_op = elementwise_op<Less, 2, float, double, std::int32_t, std::int64_t, std::uint8_t>("less");
const OpDef less_equal_op =
    elementwise_op<LessEqual, 2, float, double, std::int32_t, std::int64_t, std::uint8_t>("less_equal");
const OpDef greater_op = elementwise_op<Greater, 2, float, double, std::int32_t, std::int64_t, std::uint8_t>("greater");
const OpDef greater_equal_op =
    elementwise_op<GreaterEqual, 2, float, double, std::int32_t, std::int64_t, std::uint8_t>("greater_equal");
const OpDef equal_op = elementwise_op<Equal, 2, float, double, std::int32_t, std::int64_t, std::uint8_t, bool>("equal");
const OpDef not_equal_op =
    elementwise_op<NotEqual, 2, float, double, std::int32_t, std::int64_t, std::uint8_t, bool>("not_equal");
const OpDef logical_and_op = elementwise_op<LogicalAnd, 2, bool>("logical_and");
const OpDef logical_or_op = elementwise_op<LogicalOr, 2, bool>("logical_or");
const OpDef logical_xor_op = elementwise_op<LogicalXor, 2, bool>("logical_xor");

}  // namespace

Value less(Arg a, Arg b, Label label) { return emit(less_op, {a, b}, {}, label)[0]; }
Value less_equal(Arg a, Arg b, Label label) { return emit(less_equal_op, {a, b}, {}, label)[0]; }
Value greater(Arg a, Arg b, Label label) { return emit(greater_op, {a, b}, {}, label)[0]; }
Value greater_equal(Arg a, Arg b, Label label) { return emit(greater_equal_op, {a, b}, {}, label)[0]; }
Value equal(Arg a, Arg b, Label label) { return emit(equal_op, {a, b}, {}, label)[0]; }
Value not_equal(Arg a, Arg b, Label label) { return emit(not_equal_op, {a, b}, {}, label)[0]; }
Value logical_and(Arg a, Arg b, Label label) { return emit(logical_and_op, {a, b}, {}, label)[0]; }
Value logical_or(Arg a, Arg b, Label label) { return emit(logical_or_op, {a, b}, {}, label)[0]; }
Value logical_xor(Arg a, Arg b, Label label) { return emit(logical_xor_op, {a, b}, {}, label)[0]; }

}  // namespace graphsink
