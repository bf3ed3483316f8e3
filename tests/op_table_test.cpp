// Every op on every device of the build, against a reference in f64 and its numeric gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <set>

#include "op_table.h"
#include "test_ops.h"

namespace graphsink {
namespace {

using testing::Array;
using testing::Arrays;
using testing::Case;
using testing::Operand;
using testing::OpRow;

const std::vector<OpRow>& table() {
  static const std::vector<OpRow> kTable = testing::op_table();
  return kTable;
}

// Floats of magnitude 0.3 to 2: away from the kink of relu and from division by zero.
double sample(DType dtype, bool is_coarse, std::mt19937& random) {
  auto integer = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  if (dtype == DType::boolean) return integer(2);
  if (dtype == DType::u8) return integer(is_coarse ? 5 : 41);
  if (!is_float(dtype)) return integer(is_coarse ? 5 : 41) - (is_coarse ? 2 : 20);
  if (is_coarse) return 0.5 * (integer(5) - 2);
  double magnitude = 0.3 + 1.7 * integer(1 << 20) / (1 << 20);
  double x = integer(2) ? magnitude : -magnitude;
  return Tensor::full(dtype, {}, x).at(0);  // rounded
}

Array make_array(const Operand& operand, DType dtype, bool is_coarse, std::mt19937& random) {
  Array result(operand.shape);
  for (double& x : result.at)
    x = operand.limit ? static_cast<double>(random() % static_cast<unsigned>(operand.limit))
                      : sample(dtype, is_coarse, random);
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

// |seen - wanted| <= tolerance * max(1, |wanted|, scale), NaN equal to NaN.
void expect_near(const Tensor& seen, const Array& wanted, double tolerance, double scale = 1.0) {
  ASSERT_EQ(to_string(seen.shape()), to_string(wanted.shape));
  for (std::int64_t i = 0; i < wanted.shape.size(); ++i) {
    double a = seen.at(i), b = wanted[i];
    if (std::isnan(a) && std::isnan(b)) continue;
    ASSERT_LE(std::abs(a - b), tolerance * std::max({1.0, std::abs(b), scale}))
        << "element " << i << ": " << a << ", not " << b;
  }
}

// Twice the largest relative error of one rounding: f32 and f64 leave room for sums and functions, which the halves
// compute in f32.
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 4e-6;
    case DType::f64:
      return 1e-13;
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    default:
      return 0;
  }
}

double dot(const Array& a, const Array& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.at.size(); ++i) sum += a.at[i] * b.at[i];
  return sum;
}

// One case of a row in one dtype, in one graph: the op, and the gradients of sum(weight * op) for all float operands.
class CaseRun {
 public:
  CaseRun(const OpRow& row, const Case& operands, DType dtype, bool is_transposed)
      : row_(row), dtype_(dtype), has_grad_(row.has_grad && is_float(dtype)) {
    std::mt19937 random(7);
    for (const Operand& operand : operands) {
      arrays_.push_back(make_array(operand, dtype, row.is_coarse, random));
      if (row.is_positive)
        for (double& x : arrays_.back().at) x = std::abs(x);
      dtypes_.push_back(operand.limit ? DType::i32 : dtype);
      Shape shape = operand.shape;
      bool transposes = is_transposed && shape.rank() >= 2;
      if (transposes) std::swap(shape[-1], shape[-2]);
      Tensor tensor = to_tensor(transposes ? testing::swap_last(arrays_.back()) : arrays_.back(), dtypes_.back());
      inputs_.push_back(graph_.constant(std::move(tensor)));
      values_.push_back(transposes ? transpose(inputs_.back()) : inputs_.back());
    }
    wanted_ = row.reference(arrays_);
    output_ = row.apply(values_);
    graph_.output("y", output_);
    if (has_grad_) add_gradients(random);
  }

  void run(DeviceId device) {
    Program program = compile(graph_, {.target = device});
    program.run(interactive);
    Tensor y = program.read_output("y");
    EXPECT_EQ(y.dtype(), output_.dtype());
    // A sum of many terms is as inexact as its largest partial sum, which is no half.
    double scale = std::sqrt(static_cast<double>(std::max<std::int64_t>(1, arrays_[0].shape.size())));
    expect_near(y, wanted_, tolerance_of(y.dtype()), is_half(y.dtype()) ? 1.0 : scale);
    for (std::size_t i = 0; has_grad_ && i < values_.size(); ++i)
      if (dtypes_[i] == dtype_) check_gradient(program.read_output("g" + std::to_string(i)), i);
  }

 private:
  void add_gradients(std::mt19937& random) {
    weight_ = make_array(Operand(wanted_.shape), output_.dtype(), false, random);
    Value loss = sum(mul(output_, graph_.constant(to_tensor(weight_, output_.dtype()))));
    std::vector<Arg> wrt;
    for (std::size_t i = 0; i < values_.size(); ++i)
      if (dtypes_[i] == dtype_) wrt.push_back(values_[i]);
    std::vector<Value> gradients = grad(loss, wrt);
    for (std::size_t i = 0, k = 0; i < values_.size(); ++i)
      if (dtypes_[i] == dtype_) graph_.output("g" + std::to_string(i), gradients[k++]);
  }

  // Central differences of the reference, for up to 40 elements spread over the operand.
  void check_gradient(const Tensor& seen, std::size_t operand) {
    SCOPED_TRACE("gradient of operand " + std::to_string(operand));
    ASSERT_EQ(to_string(seen.type()), to_string(values_[operand].type()));
    constexpr double kStep = 1e-5;
    constexpr std::int64_t kChecked = 40;
    // Gradients are chains of several ops, each of which rounds.
    double tolerance = std::max({1e-8, 3 * tolerance_of(dtype_), 3 * tolerance_of(output_.dtype())});
    std::int64_t size = seen.shape().size(), stride = std::max<std::int64_t>(1, size / kChecked);
    // The loss, and what is summed into one element of a gradient, may be much larger than the gradient.
    double scale = std::sqrt(static_cast<double>(std::max<std::int64_t>({1, size, wanted_.shape.size()})));
    Arrays x = arrays_;
    for (std::int64_t i = 0; i < size; i += stride) {
      double at = x[operand][i];
      x[operand][i] = at + kStep;
      double up = dot(row_.reference(x), weight_);
      x[operand][i] = at - kStep;
      double down = dot(row_.reference(x), weight_);
      x[operand][i] = at;
      double wanted = (up - down) / (2 * kStep);
      ASSERT_LE(std::abs(seen.at(i) - wanted), tolerance * std::max({1.0, std::abs(wanted), scale}))
          << "element " << i << ": " << seen.at(i) << ", not " << wanted;
    }
  }

  const OpRow& row_;
  DType dtype_;
  bool has_grad_;
  Graph graph_;
  Arrays arrays_;
  std::vector<DType> dtypes_;
  std::vector<Value> inputs_, values_;
  Value output_;
  Array wanted_, weight_;
};

class OpTable : public ::testing::TestWithParam<std::tuple<DeviceId, std::size_t>> {};

std::string row_name(const ::testing::TestParamInfo<OpTable::ParamType>& info) {
  auto [device, index] = info.param;
  return table()[index].name + "_" + std::to_string(index) + (device.kind == DeviceKind::cpu ? "_cpu" : "_cuda");
}
INSTANTIATE_TEST_SUITE_P(Rows, OpTable,
                         ::testing::Combine(::testing::ValuesIn(testing::devices()),
                                            ::testing::Range<std::size_t>(0, table().size())),
                         row_name);

TEST_P(OpTable, AgreesWithTheReference) {
  auto [device, index] = GetParam();
  const OpRow& row = table()[index];
  for (DType dtype : row.dtypes) {
    for (const Case& operands : row.cases) {
      std::string shapes(to_string(dtype));
      bool has_matrix = false;
      for (const Operand& operand : operands) {
        shapes += " " + to_string(operand.shape);
        has_matrix = has_matrix || operand.shape.rank() >= 2;
      }
      for (bool is_transposed : {false, true}) {
        if (is_transposed && !has_matrix) continue;
        SCOPED_TRACE(row.name + " " + shapes + (is_transposed ? " transposed" : ""));
        CaseRun(row, operands, dtype, is_transposed).run(device);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(OpTable, HasARowForEveryOp) {
  std::ifstream file(GRAPHSINK_SOURCE_DIR "/include/graphsink/ops.h");
  ASSERT_TRUE(file.is_open());
  std::set<std::string> declared, tested;
  for (std::string line; std::getline(file, line);)
    for (const std::string start : {"Value ", "std::vector<Value> ", "TopK "})
      if (line.starts_with(start)) declared.insert(line.substr(start.size(), line.find('(') - start.size()));
  for (const OpRow& row : table()) tested.insert(row.name);
  EXPECT_FALSE(declared.empty());
  EXPECT_EQ(declared, tested);
}

}  // namespace
}  // namespace graphsink
