#include "op_case.h"

#include <algorithm>
#include <cmath>

namespace graphsink::testing {
namespace {

// Floats of magnitude 0.3 to 2: away from the kink of relu and from division by zero.
double sample(DType dtype, bool is_coarse, std::mt19937& random) {
  auto integer = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  if (dtype == DType::boolean) return integer(2);
  if (dtype == DType::u8) return integer(is_coarse ? 5 : 41);
  if (!is_float(dtype)) return integer(is_coarse ? 5 : 41) - (is_coarse ? 2 : 20);
  if (is_coarse) return 0.5 * (integer(5) - 2);
  double magnitude = 0.3 + 1.7 * integer(1 << 20) / (1 << 20);
  return integer(2) ? magnitude : -magnitude;
}

}  // namespace

Array make_array(const Operand& operand, DType dtype, bool is_coarse, std::mt19937& random) {
  Array result(operand.shape);
  for (double& x : result.at)
    x = operand.limit ? static_cast<double>(random() % static_cast<unsigned>(operand.limit))
                      : sample(dtype, is_coarse, random);
  if (operand.limit || !is_float(dtype) || dtype == DType::f64) return result;
  Tensor rounded = to_tensor(result, dtype);
  for (std::size_t i = 0; i < result.at.size(); ++i) result.at[i] = rounded.at(static_cast<std::int64_t>(i));
  return result;
}

Tensor to_tensor(const Array& array, DType dtype) {
  Tensor tensor(dtype, array.shape);
  auto fill = [&]<class T>(std::span<T> to) {
    std::transform(array.at.begin(), array.at.end(), to.begin(), [](double x) { return static_cast<T>(x); });
  };
  if (dtype == DType::f32) fill(tensor.as<float>());
  if (dtype == DType::f64) fill(tensor.as<double>());
  if (dtype == DType::f16) fill(tensor.as<half>());
  if (dtype == DType::bf16) fill(tensor.as<bfloat16>());
  if (dtype == DType::i32) fill(tensor.as<std::int32_t>());
  if (dtype == DType::i64) fill(tensor.as<std::int64_t>());
  if (dtype == DType::u8) fill(tensor.as<std::uint8_t>());
  if (dtype == DType::boolean) fill(tensor.as<bool>());
  return tensor;
}

OpCase::OpCase(const OpRow& row, const Case& operands, DType type, bool is_transposed)
    : dtype(type), has_grad(row.has_grad && is_float(type)) {
  std::mt19937 random(7);
  for (const Operand& operand : operands) {
    arrays.push_back(make_array(operand, dtype, row.is_coarse, random));
    if (row.is_positive)
      for (double& x : arrays.back().at) x = std::abs(x);
    dtypes.push_back(operand.limit ? DType::i32 : dtype);
    bool transposes = is_transposed && operand.shape.rank() >= 2;
    Value x = graph.constant(to_tensor(transposes ? swap_last(arrays.back()) : arrays.back(), dtypes.back()));
    values.push_back(transposes ? transpose(x) : x);
  }
  output = row.apply(values);
  graph.output("y", output);
  if (has_grad) add_gradients(random);
}

void OpCase::add_gradients(std::mt19937& random) {
  weight = make_array(Operand(output.shape()), output.dtype(), false, random);
  Value loss = sum(mul(output, graph.constant(to_tensor(weight, output.dtype()))));
  std::vector<Arg> wrt;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (has_gradient(i)) wrt.push_back(values[i]);
  std::vector<Value> gradients = grad(loss, wrt);
  for (std::size_t i = 0, k = 0; i < values.size(); ++i)
    if (has_gradient(i)) graph.output("g" + std::to_string(i), gradients[k++]);
}

}  // namespace graphsink::testing
