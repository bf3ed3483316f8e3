// Every op on every device of the build, against a reference in f64 and its numeric gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "ir/graph_data.h"
#include "samples/models/source_dir.h"
#include "test_ops.h"
#include "tests/op_table/op_case.h"

namespace graphsink::op_table_test {
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

// ops.h.
std::string declarations() {
  std::ifstream file(std::string(source_dir()) + "/include/graphsink/ops.h");
  EXPECT_TRUE(file.is_open());
  return {std::istreambuf_iterator<char>(file), {}};
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

// Elements of each gradient that are compared with central differences, and how many elements the operands of a case
// have at most of which second derivatives are. Under a sanitizer the reference takes most of
// the time, and says nothing about addresses and races in the op.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kChecked = 4, kSecondElements = 50;
#else
constexpr std::int64_t kChecked = 40, kSecondElements = 2000;
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
    Tensor y = program.output("y");
    EXPECT_EQ(y.dtype(), output.dtype());
    // A sum of many terms is as inexact as its largest partial sum, which is no half.
    double scale = std::sqrt(static_cast<double>(std::max<std::int64_t>(1, arrays[0].shape.size())));
    expect_near(y, wanted_, tolerance_of(y.dtype()), is_half(y.dtype()) ? 1.0 : scale);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (has_gradient(i)) check_gradient(program.output("g" + std::to_string(i)), i);
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

std::int64_t elements_of(const Case& operands) {
  std::int64_t size = 0;
  for (const Operand& operand : operands) size += operand.shape.size();
  return size;
}

// The second derivatives of a case.
class SecondRun : public testing::SecondCase {
 public:
  SecondRun(const OpRow& row, const Case& operands, DType dtype, DType exact_in, DeviceId device)
      : SecondCase(row, operands, dtype, exact_in), program_(compile(graph, {.target = device})) {}

  // That s grows as its gradients say, in f64, by central differences along random directions.
  void check_differences() {
    const Arrays seen = derivatives();
    constexpr double kStep = 1e-6, kTolerance = 1e-6;
    std::mt19937 random(3);
    for (int k = 0; k < 3; ++k) {
      double along = 0, squares = 1;
      Arrays up = arrays, down = arrays;
      for (std::size_t i = 0; i < arrays.size(); ++i) {
        if (!has_gradient(i)) continue;
        const Array direction = testing::make_array(Operand(arrays[i].shape), f64, false, random);
        for (std::size_t e = 0; e < direction.at.size(); ++e) {
          up[i].at[e] += kStep * direction.at[e];
          down[i].at[e] -= kStep * direction.at[e];
          along += seen[i].at[e] * direction.at[e];
          squares += seen[i].at[e] * seen[i].at[e];
        }
      }
      const double wanted = (s_at(up) - s_at(down)) / (2 * kStep);
      ASSERT_LE(std::abs(along - wanted), kTolerance * std::sqrt(squares)) << along << ", not " << wanted;
    }
  }

  // The gradients of s for all operands; empty for those that have none.
  Arrays derivatives() {
    (void)s_at(arrays);
    Arrays result(arrays.size());
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (!has_gradient(i)) continue;
      const Tensor seen = program_.output("s" + std::to_string(i));
      EXPECT_EQ(to_string(seen.type()), to_string(values[i].type()));
      result[i] = Array(seen.shape());
      for (std::int64_t e = 0; e < seen.shape().size(); ++e) result[i][e] = seen.at(e);
    }
    return result;
  }

 private:
  double s_at(const Arrays& operands) {
    for (std::size_t i = 0; i < operands.size(); ++i)
      program_.write(values[i], testing::to_tensor(operands[i], dtypes[i]));
    program_.run(interactive);
    return program_.output("s").at(0);
  }

  Program program_;
};

// In another dtype, with operands that it holds exactly, second derivatives are those of f64.
void expect_second_derivatives_of(DType dtype, const OpRow& row, const Case& operands, DeviceId device) {
  SecondRun run(row, operands, dtype, dtype, device);
  const Arrays seen = run.derivatives(), wanted = SecondRun(row, operands, f64, dtype, device).derivatives();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    double largest = 1;
    for (double x : wanted[i].at) largest = std::max(largest, std::abs(x));
    ASSERT_EQ(seen[i].at.size(), wanted[i].at.size());
    // Each of several ops rounds its results, those of halves to the dtype.
    for (std::size_t e = 0; e < wanted[i].at.size(); ++e)
      ASSERT_LE(std::abs(seen[i].at[e] - wanted[i].at[e]), 8 * tolerance_of(dtype) * largest) << "element " << e;
  }
}

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

bool has_second_derivative(const OpRow& row, DType dtype) {
  return row.has_grad && std::find(row.dtypes.begin(), row.dtypes.end(), dtype) != row.dtypes.end() &&
         testing::SecondCase(row, row.cases[0], dtype, dtype).output.dtype() == dtype;
}

TEST_P(OpTable, HasSecondDerivatives) {
  auto [device, index] = GetParam();
  const OpRow& row = table()[index];
  if (!has_second_derivative(row, f64)) return;
  for (const Case& operands : row.cases) {
    if (elements_of(operands) > kSecondElements) continue;
    SCOPED_TRACE(row.name + " " + to_string(operands[0].shape));
    SecondRun(row, operands, f64, f64, device).check_differences();
    if (HasFatalFailure()) return;
  }
  for (DType dtype : dtypes_of(row)) {
    if (dtype == f64 || !is_float(dtype)) continue;
    SCOPED_TRACE(row.name + " " + std::string(to_string(dtype)));
    expect_second_derivatives_of(dtype, row, row.cases[0], device);
  }
}

// What the rows of one op say.
struct OpEntry {
  std::set<DType> dtypes;
  bool has_gradients = false;  // of floats, and second ones, which HasSecondDerivatives checks
  std::string because;

  void add(const OpRow& row) {
    dtypes.insert(row.dtypes.begin(), row.dtypes.end());
    has_gradients = has_gradients || has_second_derivative(row, f64);
    if (!row.no_gradient_because.empty()) because = row.no_gradient_because;
  }
};

// Prints for each op the dtypes that it takes on each device, and whether it has gradients, or why not.
TEST(OpTable, SaysWhatEachOpHas) {
  std::string header = declarations();
  std::erase_if(header, [](char c) { return c == '/' || c == '\n' || c == ' '; });
  std::map<std::string, OpEntry> entries;
  for (const OpRow& row : table()) entries[row.name].add(row);
  for (const auto& [name, entry] : entries) {
    std::string dtypes;
    for (DType dtype : entry.dtypes) dtypes += " " + std::string(to_string(dtype));
    for (DeviceId device : testing::devices())
      std::cout << name << " | " << to_string(device) << ":" << dtypes << " | ";
    std::cout << (entry.has_gradients ? "gradient, second derivative" : entry.because) << "\n";
    std::string because = entry.because;
    std::erase(because, ' ');
    EXPECT_NE(entry.has_gradients, !because.empty()) << name << " has a gradient and a reason why not, or neither";
    EXPECT_NE(header.find(because), std::string::npos) << "ops.h does not say of " << name << ": " << entry.because;
  }
}

// explain_json() prints what they name.
void expect_named_attributes(const Graph& graph, std::set<std::string_view>& ops) {
  for (const Node& node : graph.data()->nodes) {
    if (node.attrs == Attrs() || is_source(*node.op)) continue;
    EXPECT_TRUE(node.attrs.has_fields()) << node.op->name;
    ops.insert(node.op->name);
  }
}

TEST(OpTable, OpsNameTheFieldsOfTheirAttributes) {
  std::set<std::string_view> ops;  // those with attributes
  for (const OpRow& row : table()) {
    expect_named_attributes(testing::OpCase(row, row.cases[0], row.dtypes.front(), false).graph, ops);
    if (has_second_derivative(row, f64))
      expect_named_attributes(testing::SecondCase(row, row.cases[0], f64, f64).graph, ops);
  }
  EXPECT_GE(ops.size(), 40u);
}

TEST(OpTable, HasARowForEveryOp) {
  std::istringstream file(declarations());
  std::set<std::string> declared, tested;
  for (std::string line; std::getline(file, line);)
    for (const std::string start : {"Value ", "std::vector<Value> ", "TopK ", "Sorted ", "BatchNorm "})
      if (line.starts_with(start)) declared.insert(line.substr(start.size(), line.find('(') - start.size()));
  for (const OpRow& row : table()) tested.insert(row.name);
  EXPECT_FALSE(declared.empty());
  EXPECT_EQ(declared, tested);
}

}  // namespace
}  // namespace graphsink::op_table_test
