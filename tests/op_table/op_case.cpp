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

namespace {

Arrays make_arrays(const OpRow& row, const Case& operands, DType dtype, bool is_coarse, std::mt19937& random) {
  Arrays arrays;
  for (const Operand& operand : operands) {
    arrays.push_back(make_array(operand, dtype, is_coarse, random));
    if (row.is_positive)
      for (double& x : arrays.back().at) x = std::abs(x);
  }
  return arrays;
}

}  // namespace

OpCase::OpCase(const OpRow& row, const Case& operands, DType type, bool is_transposed)
    : dtype(type), has_grad(row.has_grad && is_float(type)) {
  std::mt19937 random(7);
  arrays = make_arrays(row, operands, dtype, row.is_coarse, random);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    dtypes.push_back(operands[i].limit ? DType::i32 : dtype);
    bool transposes = is_transposed && operands[i].shape.rank() >= 2;
    Value x = graph.constant(to_tensor(transposes ? swap_last(arrays[i]) : arrays[i], dtypes.back()));
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

SecondCase::SecondCase(const OpRow& row, const Case& operands, DType type, DType exact_in) : dtype(type) {
  std::mt19937 random(11);
  arrays = make_arrays(row, operands, exact_in, false, random);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    dtypes.push_back(operands[i].limit ? DType::i32 : dtype);
    values.push_back(graph.input("x" + std::to_string(i), dtypes.back(), operands[i].shape));
  }
  output = row.apply(values);
  if (has_gradients()) add_gradients(random);
}

void SecondCase::add_gradients(std::mt19937& random) {
  const DType wide = is_half(dtype) ? f32 : dtype;
  auto weighted = [&](const Value& x) {
    const Array weight = make_array(Operand(x.shape()), f32, false, random);
    return sum(cast(x, wide) * graph.constant(to_tensor(weight, wide)));
  };
  std::vector<Arg> wrt;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (has_gradient(i)) wrt.push_back(values[i]);
  const Value y = cast(output, wide);
  Value s = graph.constant(Tensor::full(wide, {}, 0));
  for (const Value& gradient : grad(weighted(y * y), wrt)) s = s + weighted(gradient);
  const std::vector<Value> gradients = grad(s, wrt);
  graph.output("s", s);
  for (std::size_t i = 0, k = 0; i < values.size(); ++i)
    if (has_gradient(i)) graph.output("s" + std::to_string(i), gradients[k++]);
}

}  // namespace graphsink::testing
