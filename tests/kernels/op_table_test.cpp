// Every op on every device of the build, against a reference in f64 and its numeric gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "samples/models/source_dir.h"
#include "test_ops.h"
#include "tests/op_table/op_case.h"

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

// |seen - wanted| <= tolerance * max(1, |wanted|, scale), infinities and NaN equal to themselves.
void expect_near(const Tensor& seen, const Array& wanted, double tolerance, double scale = 1.0) {
  ASSERT_EQ(to_string(seen.shape()), to_string(wanted.shape));
  for (std::int64_t i = 0; i < wanted.shape.size(); ++i) {
    double a = seen.at(i), b = wanted[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
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

// Elements of each gradient that are compared with central differences. Under a sanitizer the reference takes most of
// the time, and says nothing about addresses and races in the op.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kChecked = 4;
#else
constexpr std::int64_t kChecked = 40;
#endif

// The thread sanitizer sees which thread touches which element, and that is the same for all types of a row.
std::vector<DType> dtypes_of(const OpRow& row) {
#if defined(__SANITIZE_THREAD__)
  return {row.dtypes.front()};
#else
  return row.dtypes;
#endif
}

double dot(const Array& a, const Array& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.at.size(); ++i) sum += a.at[i] * b.at[i];
  return sum;
}

// A case against the reference of its row.
class CaseRun : private testing::OpCase {
 public:
  CaseRun(const OpRow& row, const Case& operands, DType dtype, bool is_transposed)
      : OpCase(row, operands, dtype, is_transposed), row_(row), wanted_(row.reference(arrays)) {}

  void run(DeviceId device) {
    Program program = compile(graph, {.target = device});
    program.run(interactive);
    Tensor y = program.read_output("y");
    EXPECT_EQ(y.dtype(), output.dtype());
    // A sum of many terms is as inexact as its largest partial sum, which is no half.
    double scale = std::sqrt(static_cast<double>(std::max<std::int64_t>(1, arrays[0].shape.size())));
    expect_near(y, wanted_, tolerance_of(y.dtype()), is_half(y.dtype()) ? 1.0 : scale);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (has_gradient(i)) check_gradient(program.read_output("g" + std::to_string(i)), i);
  }

 private:
  // Central differences of the reference, for elements spread over the operand.
  void check_gradient(const Tensor& seen, std::size_t operand) {
    SCOPED_TRACE("gradient of operand " + std::to_string(operand));
    ASSERT_EQ(to_string(seen.type()), to_string(values[operand].type()));
    constexpr double kStep = 1e-5;
    // Gradients are chains of several ops, each of which rounds.
    double tolerance = std::max({1e-8, 3 * tolerance_of(dtype), 3 * tolerance_of(output.dtype())});
    std::int64_t size = seen.shape().size(), stride = std::max<std::int64_t>(1, size / kChecked);
    // The loss, and what is summed into one element of a gradient, may be much larger than the gradient.
    double scale = std::sqrt(static_cast<double>(std::max<std::int64_t>({1, size, wanted_.shape.size()})));
    Arrays x = arrays;
    for (std::int64_t i = 0; i < size; i += stride) {
      double at = x[operand][i];
      x[operand][i] = at + kStep;
      double up = dot(row_.reference(x), weight);
      x[operand][i] = at - kStep;
      double down = dot(row_.reference(x), weight);
      x[operand][i] = at;
      double wanted = (up - down) / (2 * kStep);
      ASSERT_LE(std::abs(seen.at(i) - wanted), tolerance * std::max({1.0, std::abs(wanted), scale}))
          << "element " << i << ": " << seen.at(i) << ", not " << wanted;
    }
  }

  const OpRow& row_;
  Array wanted_;
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
  for (DType dtype : dtypes_of(row)) {
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
  std::ifstream file(std::string(source_dir()) + "/include/graphsink/ops.h");
  ASSERT_TRUE(file.is_open());
  std::set<std::string> declared, tested;
  for (std::string line; std::getline(file, line);)
    for (const std::string start : {"Value ", "std::vector<Value> ", "TopK ", "Sorted ", "BatchNorm "})
      if (line.starts_with(start)) declared.insert(line.substr(start.size(), line.find('(') - start.size()));
  for (const OpRow& row : table()) tested.insert(row.name);
  EXPECT_FALSE(declared.empty());
  EXPECT_EQ(declared, tested);
}

}  // namespace
}  // namespace graphsink
