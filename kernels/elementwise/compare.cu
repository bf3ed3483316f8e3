// Comparisons and logical operations: element-wise to boolean, with broadcasting. No gradient passes.
#include <limits>
#include <optional>

#include "base/convert.h"
#include "kernels/file_ops.h"
#include "kernels/support/elementwise.h"

namespace graphsink {
namespace {

BINARY_SCALAR(Less, less, a < b);
BINARY_SCALAR(LessEqual, less_equal, a <= b);
BINARY_SCALAR(Greater, greater, a > b);
BINARY_SCALAR(GreaterEqual, greater_equal, a >= b);
BINARY_SCALAR(Equal, equal, a == b);
BINARY_SCALAR(NotEqual, not_equal, a != b);
BINARY_SCALAR(LogicalAnd, logical_and, a&& b);
BINARY_SCALAR(LogicalOr, logical_or, a || b);
BINARY_SCALAR(LogicalXor, not_equal, a != b);  // booleans: xor is not_equal

template <class F, class... More>
constexpr OpDef comparison(std::string_view name) {
  return elementwise_op<F, 2, float, double, std::int32_t, std::int64_t, std::uint8_t, More...>(name);
}
const OpDef less_op = comparison<Less>("less");
const OpDef less_equal_op = comparison<LessEqual>("less_equal");
const OpDef greater_op = comparison<Greater>("greater");
const OpDef greater_equal_op = comparison<GreaterEqual>("greater_equal");
const OpDef equal_op = comparison<Equal, bool>("equal");
const OpDef not_equal_op = comparison<NotEqual, bool>("not_equal");
const OpDef logical_and_op = elementwise_op<LogicalAnd, 2, bool>("logical_and");
const OpDef logical_or_op = elementwise_op<LogicalOr, 2, bool>("logical_or");
const OpDef logical_xor_op = elementwise_op<LogicalXor, 2, bool>("logical_xor");

// --- comparisons with a number that the dtype of the tensor cannot hold

enum class Order { less, less_equal, greater, greater_equal, equal, not_equal };
constexpr const OpDef* kOps[] = {&less_op, &less_equal_op, &greater_op, &greater_equal_op, &equal_op, &not_equal_op};
const OpDef& op_of(Order order) { return *kOps[static_cast<std::size_t>(order)]; }

// a `order` b is b `turned` a.
Order turned(Order order) {
  switch (order) {
    case Order::less:
      return Order::greater;
    case Order::less_equal:
      return Order::greater_equal;
    case Order::greater:
      return Order::less;
    case Order::greater_equal:
      return Order::less_equal;
    default:
      return order;
  }
}

struct Comparison {
  Order order;
  double number;
};

// For every x of the dtype the same answer as `order` and `number` in exact arithmetic, with a number of the dtype.
template <class T>
Comparison exact(Order order, double number) {
  if (holds<T>(number)) return {order, number};
  bool is_less = order == Order::less || order == Order::less_equal;
  double neighbour = 0;
  if constexpr (std::is_integral_v<T>) {
    constexpr auto kLowest = static_cast<double>(std::numeric_limits<T>::lowest());
    Comparison never{Order::less, kLowest}, always{Order::greater_equal, kLowest};
    if (order == Order::not_equal) return always;
    if (order == Order::equal || number != number) return never;
    neighbour = std::floor(number);
    if (neighbour < kLowest) return is_less ? never : always;
    if (!holds<T>(neighbour)) return is_less ? always : never;
  } else {
    if (order == Order::equal || order == Order::not_equal) return {order, std::numeric_limits<double>::quiet_NaN()};
    neighbour = double{T(number)};  // 0 or infinite
  }
  // No x lies between the number and its neighbour.
  if (neighbour < number) return {is_less ? Order::less_equal : Order::greater, neighbour};
  return {is_less ? Order::less : Order::greater_equal, neighbour};
}

// The dtype that a number takes beside this operand; none beside another number.
std::optional<DType> dtype_beside(const Arg& operand) {
  if (const auto* value = std::get_if<Value>(&operand.content()); value && value->valid()) return value->dtype();
  if (const auto* variable = std::get_if<Variable>(&operand.content()); variable && variable->valid())
    return variable->type().dtype;
  return {};
}

Value compare(Order order, const Arg& a, const Arg& b, Placement placement) {
  if (std::holds_alternative<double>(a.content()) && !std::holds_alternative<double>(b.content()))
    return compare(turned(order), b, a, placement);
  const auto* number = std::get_if<double>(&b.content());
  std::optional<DType> dtype = dtype_beside(a);
  if (number == nullptr || !dtype || *dtype == DType::boolean) return emit(op_of(order), {a, b}, {}, placement)[0];
  Comparison comparison{};
  for_dtype<float, double, half, bfloat16, std::int32_t, std::int64_t, std::uint8_t>(
      *dtype, [&]<class T>() { comparison = exact<T>(order, *number); });
  return emit(op_of(comparison.order), {a, Arg(comparison.number, b.where())}, {}, placement)[0];
}

}  // namespace

Value less(Arg a, Arg b, Placement placement) { return compare(Order::less, a, b, placement); }
Value less_equal(Arg a, Arg b, Placement placement) { return compare(Order::less_equal, a, b, placement); }
Value greater(Arg a, Arg b, Placement placement) { return compare(Order::greater, a, b, placement); }
Value greater_equal(Arg a, Arg b, Placement placement) { return compare(Order::greater_equal, a, b, placement); }
Value equal(Arg a, Arg b, Placement placement) { return compare(Order::equal, a, b, placement); }
Value not_equal(Arg a, Arg b, Placement placement) { return compare(Order::not_equal, a, b, placement); }
Value logical_and(Arg a, Arg b, Placement placement) { return emit(logical_and_op, {a, b}, {}, placement)[0]; }
Value logical_or(Arg a, Arg b, Placement placement) { return emit(logical_or_op, {a, b}, {}, placement)[0]; }
Value logical_xor(Arg a, Arg b, Placement placement) { return emit(logical_xor_op, {a, b}, {}, placement)[0]; }

std::span<const FileOp> compare_file_ops() {
  static constexpr FileOp ops[] = {file_op(less_op),          file_op(less_equal_op), file_op(greater_op),
                                   file_op(greater_equal_op), file_op(equal_op),      file_op(not_equal_op),
                                   file_op(logical_and_op),   file_op(logical_or_op), file_op(logical_xor_op)};
  return ops;
}

}  // namespace graphsink
