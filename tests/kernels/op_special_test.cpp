// Every float op and its gradient at zeros of both signs, infinities, NaNs, denormals, the ends of the ranges and large
// offsets, on every device.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "op_table_special_lines.h"
#include "samples/models/source_dir.h"
#include "test_ops.h"
#include "tests/op_table/op_case.h"

namespace graphsink::op_special_test {
namespace {

using testing::Array;
using testing::Arrays;
using testing::Case;
using testing::OpRow;
using testing::SpecialRow;

const std::vector<SpecialRow>& special_rows() {
  static const std::vector<SpecialRow> kRows = [] {
    std::vector<SpecialRow> rows = testing::special_elementwise_rows();
    rows.push_back(testing::special_pow_row());
    for (SpecialRow& row : testing::special_line_rows()) rows.push_back(std::move(row));
    return rows;
  }();
  return kRows;
}

// Ops whose results are elements of their operands.
const std::set<std::string> kMoves{"broadcast_like", "reshape",   "reshape_like", "transpose",      "permute",
                                   "slice",          "pad",       "concat",       "stack",          "split",
                                   "gather",         "embedding", "flatten",      "squeeze",        "unsqueeze",
                                   "where",          "tril",      "triu",         "take_along_axis"};

double tolerance_of(DType dtype) { return dtype == f64 ? 1e-13 : dtype == f32 ? 4e-6 : dtype == f16 ? 2e-3 : 1.6e-2; }

double largest_of(const Arrays& arrays) {
  double largest = 1;
  for (const Array& array : arrays)
    for (double x : array.at)
      if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  return largest;
}

// Zeros in place of denormals have a test of their own: api/denormal_test.cpp.
CompileOptions with_denormals(DeviceId device) {
  CompileOptions options{.target = device};
  options.flush_denormals = false;
  return options;
}

constexpr double kWeight = 2000;  // the largest weight of a result

// As close as rounding allows: NaN where wanted, infinite where wanted or where the dtype ends; of a result of 0 also
// the sign, unless it is a gradient, which may have been added to another 0. Sums are as inexact as numbers of `scale`.
void expect_special(const Tensor& seen, const Array& wanted, bool is_gradient, double scale = 0) {
  ASSERT_EQ(to_string(seen.shape()), to_string(wanted.shape));
  Tensor rounded = testing::to_tensor(wanted, seen.dtype());
  for (std::int64_t i = 0; i < wanted.shape.size(); ++i) {
    double a = seen.at(i), b = rounded.at(i);
    if (std::isnan(b)) {
      EXPECT_TRUE(std::isnan(a)) << "element " << i << ": " << a << ", not NaN";
    } else if (std::isinf(b)) {
      EXPECT_EQ(a, b) << "element " << i;
    } else {
      double allowed = is_float(seen.dtype()) ? tolerance_of(seen.dtype()) * std::max(scale, std::abs(b)) : 0;
      allowed += 4 * (is_gradient ? kWeight : 1) * testing::limits_of(seen.dtype()).denormal;
      EXPECT_LE(std::abs(a - b), allowed) << "element " << i << ": " << a << ", not " << b;
      if (wanted[i] == 0 && !is_gradient) {
        EXPECT_EQ(std::signbit(a), std::signbit(b)) << "element " << i;
      }
    }
    if (::testing::Test::HasNonfatalFailure()) return;
  }
}

Array rounded(const Array& array, DType dtype) {
  Tensor tensor = testing::to_tensor(array, dtype);
  Array result(array.shape);
  for (std::int64_t i = 0; i < array.shape.size(); ++i) result[i] = tensor.at(i);
  return result;
}

Array weights_of(const Shape& shape, std::initializer_list<double> values) {
  Array result(shape);
  for (std::int64_t i = 0; i < shape.size(); ++i)
    result[i] = values.begin()[static_cast<std::size_t>(i) % values.size()];
  return result;
}

// The op's result "y" and the gradients "g0", "g1", ... of sum(weight * op).
class SpecialRun {
 public:
  SpecialRun(Arrays operands, const std::vector<DType>& dtypes) : arrays(std::move(operands)) {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      arrays[i] = rounded(arrays[i], dtypes[i]);
      values.push_back(graph.constant(testing::to_tensor(arrays[i], dtypes[i])));
    }
  }

  void add_gradients(const Value& y, const Array& weight) {
    Value loss = sum(mul(y, graph.constant(testing::to_tensor(weight, y.dtype()))));
    std::vector<Arg> wrt;
    for (const Value& value : values)
      if (is_float(value.dtype())) wrt.push_back(value);
    std::vector<Value> gradients = grad(loss, wrt);
    for (std::size_t i = 0; i < gradients.size(); ++i) graph.output("g" + std::to_string(i), gradients[i]);
  }

  Graph graph;
  Arrays arrays;
  std::vector<Value> values;
};

class OpSpecials : public ::testing::TestWithParam<std::tuple<DeviceId, std::size_t>> {};

std::string row_name(const ::testing::TestParamInfo<OpSpecials::ParamType>& info) {
  auto [device, index] = info.param;
  return special_rows()[index].name + "_" + std::to_string(index) + (device.kind == DeviceKind::cpu ? "_cpu" : "_cuda");
}
INSTANTIATE_TEST_SUITE_P(Rows, OpSpecials,
                         ::testing::Combine(::testing::ValuesIn(testing::devices()),
                                            ::testing::Range<std::size_t>(0, special_rows().size())),
                         row_name);

TEST_P(OpSpecials, AgreeWithExactArithmetic) {
  auto [device, index] = GetParam();
  const SpecialRow& row = special_rows()[index];
  for (DType dtype : row.dtypes) {
    SCOPED_TRACE(to_string(dtype));
    Arrays operands = row.operands(dtype);
    std::vector<DType> dtypes(operands.size(), dtype);
    if (row.indices >= 0) dtypes[static_cast<std::size_t>(row.indices)] = i32;
    SpecialRun run(operands, dtypes);
    Value y = row.apply(run.values);
    run.graph.output("y", y);
    Array wanted = row.reference(run.arrays);
    Array weight = rounded(weights_of(wanted.shape, {1, -2, row.has_sums ? 0.5 : kWeight}), dtype);
    Arrays gradients = row.gradients ? row.gradients(run.arrays, weight) : Arrays{};
    if (row.gradients) run.add_gradients(y, weight);
    Program program = compile(run.graph, with_denormals(device));
    program.run(interactive);
    expect_special(program.output("y"), wanted, false);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      SCOPED_TRACE("gradient of operand " + std::to_string(i));
      expect_special(program.output("g" + std::to_string(i)), gradients[i], true,
                     row.has_sums ? largest_of(gradients) : 0);
    }
  }
}

// Rows of the op table with special values in every place: elements arrive with their signs, and gradients where the
// elements came from.
class OpMoves : public ::testing::TestWithParam<DeviceId> {};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, OpMoves, ::testing::ValuesIn(testing::devices()), device_name);

constexpr double kFirstIndex = 1000;

// For each float operand the sum of the weights of the results that are its elements. `where` looks at the numbers of
// its first operand, which hence has none.
Arrays moved_back(const OpRow& row, const Arrays& operands, const std::vector<bool>& are_floats, const Array& weight) {
  Arrays result;
  for (std::size_t operand = 0; operand < operands.size(); ++operand) {
    if (!are_floats[operand]) continue;
    Array& gradient = result.emplace_back(operands[operand].shape);
    if (row.name == "where" && operand == 0) continue;
    Arrays indices = operands;
    for (std::size_t j = row.name == "where" ? 1 : 0; j < indices.size(); ++j)
      for (std::int64_t i = 0; are_floats[j] && i < indices[j].shape.size(); ++i)
        indices[j][i] = j == operand ? kFirstIndex + static_cast<double>(i) : 0;
    Array sources = row.reference(indices);
    for (std::int64_t i = 0; i < sources.shape.size(); ++i)
      if (sources[i] >= kFirstIndex) gradient[static_cast<std::int64_t>(sources[i] - kFirstIndex)] += weight[i];
  }
  return result;
}

void check_move(const OpRow& row, const Case& operands, DType dtype, DeviceId device) {
  std::mt19937 random(3);
  std::vector<double> special = testing::specials(dtype);
  Arrays arrays;
  std::vector<DType> dtypes;
  std::vector<bool> are_floats;
  std::size_t next = 0;
  for (const testing::Operand& operand : operands) {
    arrays.push_back(testing::make_array(operand, dtype, false, random));
    dtypes.push_back(operand.limit ? i32 : dtype);
    are_floats.push_back(!operand.limit);
    for (std::int64_t i = 0; !operand.limit && i < operand.shape.size(); ++i)
      arrays.back()[i] = special[next++ % special.size()];
  }
  SpecialRun run(arrays, dtypes);
  Value y = row.apply(run.values);
  Array wanted = row.reference(run.arrays), weight = weights_of(wanted.shape, {1, -2, testing::kInfinite, 0.5});
  run.graph.output("y", y);
  run.add_gradients(y, weight);
  Program program = compile(run.graph, with_denormals(device));
  program.run(interactive);
  expect_special(program.output("y"), wanted, false);
  Arrays gradients = moved_back(row, run.arrays, are_floats, weight);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    SCOPED_TRACE("gradient of operand " + std::to_string(i));
    expect_special(program.output("g" + std::to_string(i)), gradients[i], true);
  }
}

TEST_P(OpMoves, KeepSpecialValues) {
  std::set<std::string> seen;
  for (const OpRow& row : testing::op_table()) {
    if (!kMoves.contains(row.name)) continue;
    seen.insert(row.name);
    for (DType dtype : {f32, f64, f16, bf16}) {
      SCOPED_TRACE(row.name + " " + std::string(to_string(dtype)));
      check_move(row, row.cases[0], dtype, GetParam());
    }
  }
  EXPECT_EQ(seen, kMoves);
}

TEST(OpSpecials, HaveARowForEveryFloatOp) {
  std::ifstream file(std::string(source_dir()) + "/include/graphsink/ops.h");
  ASSERT_TRUE(file.is_open());
  // Of booleans, indices or shapes alone; what casts make of special values is in dtype_test.cpp, of argmax, argmin
  // and accuracy in op_order_test.cpp, of masked_mean in bucket_test.cpp; random numbers have no operands.
  std::set<std::string> tested{"any",       "all",          "one_hot",    "arange",         "randint",
                               "bernoulli", "logical_and",  "logical_or", "logical_xor",    "logical_not",
                               "cast",      "argmax",       "argmin",     "random_uniform", "random_normal",
                               "dropout",   "check_finite", "dim",        "masked_mean",    "accuracy"};
  tested.insert(kMoves.begin(), kMoves.end());
  for (const SpecialRow& row : special_rows()) tested.insert(row.name);
  for (std::string line; std::getline(file, line);)
    for (const std::string start : {"Value ", "std::vector<Value> ", "TopK ", "Sorted ", "BatchNorm "})
      if (line.starts_with(start)) {
        std::string name = line.substr(start.size(), line.find('(') - start.size());
        EXPECT_TRUE(tested.contains(name)) << name;
      }
}

}  // namespace
}  // namespace graphsink::op_special_test
