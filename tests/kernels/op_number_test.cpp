// Numbers as operands: those that the dtype of the other operand cannot hold are refused, or compared exactly.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "test_ops.h"
#include "tests/op_table/op_case.h"

namespace graphsink::op_number_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class OpNumbers : public ::testing::TestWithParam<DeviceId> {
 protected:
  Program run(const Graph& g) {
    Program program = compile(g, {.target = GetParam()});
    program.run(interactive);
    return program;
  }
};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, OpNumbers, ::testing::ValuesIn(testing::devices()), device_name);

struct Refused {
  DType dtype;
  double number;
};

TEST(OpNumbers, ThatADtypeCannotHoldAreRefused) {
  for (auto [dtype, number] : std::vector<Refused>{{i32, 0.5},
                                                   {i32, 2.7},
                                                   {i32, 3e9},
                                                   {i32, -2147483649.0},
                                                   {i32, kNan},
                                                   {i32, kInf},
                                                   {i64, 1e-9},
                                                   {i64, 0x1p63},
                                                   {f16, 1e6},
                                                   {f16, 65520},
                                                   {f16, 1e-9},
                                                   {bf16, 1e39},
                                                   {f32, 1e39},
                                                   {f32, -1e300},
                                                   {f32, 1e-60},
                                                   {i32, 2147483648.0}}) {
    SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(number));
    Graph g;
    Value x = g.constant(Tensor(dtype, {2})), condition = g.constant(Tensor(boolean, {2}));
    Variable v("v", Tensor(dtype, {2}));
    try {
      x* number;
      ADD_FAILURE() << "not refused";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), "mul");
      EXPECT_NE(e.problem().find(to_string(dtype)), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.where().file_name()).find("op_number_test.cpp"), std::string::npos) << e.what();
      EXPECT_NE(e.remedy().find("cast()"), std::string::npos) << e.what();
    }
    EXPECT_THROW(number + x, Error);
    EXPECT_THROW(maximum(x, number), Error);
    EXPECT_THROW(where(condition, x, number), Error);
    EXPECT_THROW(where(condition, number, x), Error);
    EXPECT_THROW(concat({reshape(x, {2}), number}, 0), Error);
    EXPECT_THROW(pad(x, {1}, {1}, number), Error);
    EXPECT_THROW(Tensor::full(dtype, {2}, number), Error);
    Eager eager;
    EXPECT_THROW(eager.tensor(Tensor(dtype, {2})) - number, Error);
  }
  Graph g;
  Value bytes = g.constant(Tensor(u8, {2})), truth = g.constant(Tensor(boolean, {2}));
  EXPECT_THROW(pad(bytes, {0}, {1}, 300), Error);
  EXPECT_THROW(pad(bytes, {0}, {1}, -1), Error);
  EXPECT_THROW(where(truth, bytes, 255.5), Error);
  EXPECT_THROW(equal(truth, 2), Error);
  EXPECT_THROW(Tensor::full(boolean, {}, 0.5), Error);
}

// A condition or mask says nothing about the numbers beside it; booleans do.
TEST(OpNumber, NumbersAloneAreFloats) {
  Graph g;
  Value mask = g.constant(Tensor({true, false})), x = g.constant(Tensor({2.0, 3.0}));
  Variable flag("flag", Tensor({true, false}));
  Eager eager;
  const struct {
    const char* what;
    Value value;
    DType dtype;
  } rows[] = {
      {"numbers", where(mask, 1.0, 2.0), f32},
      {"zero and one", where(x > 2.0, 1.0, 0.0), f32},
      {"whole numbers", where(mask, 1, 0), f32},
      {"true and false", where(mask, true, false), boolean},
      {"true and a number", where(mask, true, 2.0), f32},
      {"a Variable as the condition", where(flag, g.constant(Tensor({1.0f})), 2.0), f32},
      {"a boolean beside", where(mask, flag, 1), boolean},
      {"an f64 beside", where(mask, x, 1.0), f64},
      {"a peer", logical_and(mask, 1), boolean},
      {"an Eager", where(eager.tensor(Tensor({true, false})), 1.5, 0.0), f32},
  };
  for (const auto& row : rows) EXPECT_EQ(row.value.dtype(), row.dtype) << row.what;
  EXPECT_EQ(Eager::read(rows[9].value).as<float>()[0], 1.5f);
}

TEST_P(OpNumbers, ThatRoundAreTaken) {
  Graph g;
  g.output("f32", g.constant(Tensor({1.0f})) * 0.1);
  g.output("f16", g.constant(Tensor({half(1)})) * 65519.0);
  g.output("infinite", g.constant(Tensor({half(1)})) * kInf);
  g.output("nan", g.constant(Tensor({1.0f})) + kNan);
  g.output("i64", g.constant(Tensor({std::int64_t{1}})) * 0x1p62);
  g.output("u8", where(g.constant(Tensor({true})), g.constant(Tensor({std::uint8_t{7}})), 255));
  g.output("padded", pad(g.constant(Tensor({std::uint8_t{7}})), {0}, {1}, 255));
  g.output("bool", logical_and(g.constant(Tensor({true})), 1));
  Program p = run(g);
  EXPECT_EQ(p.output("f32").as<float>()[0], 0.1f);
  EXPECT_EQ(p.output("f16").at(0), 65504);
  EXPECT_EQ(p.output("infinite").at(0), kInf);
  EXPECT_TRUE(std::isnan(p.output("nan").at(0)));
  EXPECT_EQ(p.output("i64").as<std::int64_t>()[0], std::int64_t{1} << 62);
  EXPECT_EQ(p.output("u8").at(0), 7);
  EXPECT_EQ(p.output("padded").at(1), 255);
  EXPECT_EQ(p.output("bool").at(0), 1);
}

// One constant for each number: a NaN equals none of them, and -0.0 equals 0.0.
TEST_P(OpNumbers, AreTheOnesThatWereGiven) {
  Graph g;
  Value one = g.constant(Tensor({1.0f}));
  g.output("0", one * 2.0);
  g.output("1", one + kNan);
  g.output("2", one * 3.0);
  g.output("3", one / 0.0);
  g.output("4", one / -0.0);
  Program p = run(g);
  EXPECT_EQ(p.output("0").at(0), 2);
  EXPECT_TRUE(std::isnan(p.output("1").at(0)));
  EXPECT_EQ(p.output("2").at(0), 3);
  EXPECT_EQ(p.output("3").at(0), kInf);
  EXPECT_EQ(p.output("4").at(0), -kInf);
}

struct Compared {
  DType dtype;
  std::vector<double> elements;
  std::vector<double> numbers;
};

TEST_P(OpNumbers, AreComparedExactly) {
  constexpr double kLowest = -0x1p63;
  for (const Compared& row : std::vector<Compared>{
           {u8, {0, 1, 44, 255}, {300, -1, 44, 44.5, 255, 255.5, 256, -0.5, -0.0, 1e300, -1e300, kInf, -kInf, kNan}},
           {i32,
            {-2147483648.0, -3, 0, 44, 2147483647.0},
            {3e9, -3e9, 0.5, -2.5, 2147483647.5, 0x1p31, kInf, kNan, 44}},
           {i64, {kLowest, -1, 0, 0x1p53, 0x1p62}, {0x1p63, kLowest, kLowest * 2, 1e-300, 0x1p53, kNan, -kInf}},
           {f16, {-kInf, -65504, -0.0, 6e-8, 1, 65504, kInf, kNan}, {1e6, -1e6, 1e-9, -1e-9, 65504, kInf, kNan, 1}},
           {bf16, {-kInf, -1, 0, 0x1.fep127, kInf, kNan}, {1e39, -1e39, 1e-50, -1e-50}},
           {f32, {-kInf, -1, 0, 0x1p-149, 1, 0x1.fffffep127, kInf, kNan}, {1e39, -1e300, 1e-60, -1e-60, 1, kNan}},
           {f64, {-kInf, 0, 1e300, kInf, kNan}, {1e300, kInf, -kInf, kNan}}}) {
    Graph g;
    testing::Array array(Shape{static_cast<std::int64_t>(row.elements.size())});
    array.at = row.elements;
    Tensor tensor = testing::to_tensor(array, row.dtype);
    Value x = g.constant(tensor);
    for (std::size_t k = 0; k < row.numbers.size(); ++k) {
      double n = row.numbers[k];
      std::vector<Value> results{less(x, n),    less(n, x),    less_equal(x, n),    less_equal(n, x),
                                 greater(x, n), greater(n, x), greater_equal(x, n), greater_equal(n, x),
                                 equal(x, n),   equal(n, x),   not_equal(x, n),     not_equal(n, x)};
      for (std::size_t i = 0; i < results.size(); ++i) g.output(std::to_string(k * 12 + i), results[i]);
    }
    CompileOptions options{.target = GetParam()};
    options.flush_denormals = false;  // 2^-149 is more than 1e-60
    Program p = compile(g, options);
    p.run(interactive);
    for (std::size_t k = 0; k < row.numbers.size(); ++k) {
      for (std::int64_t e = 0; e < array.shape.size(); ++e) {
        double v = tensor.at(e), n = row.numbers[k];
        bool wanted[] = {v<n, n<v, v <= n, n <= v, v> n, n> v, v >= n, n >= v, v == n, n == v, v != n, n != v};
        for (std::size_t i = 0; i < 12; ++i)
          EXPECT_EQ(p.output(std::to_string(k * 12 + i)).at(e), wanted[i])
              << to_string(row.dtype) << " " << v << " and " << n << ", comparison " << i;
      }
    }
  }
}

TEST_P(OpNumbers, AndVariablesAreStackedLikeValues) {
  Graph g;
  Variable v("v", Tensor({3.0f, 4.0f})), s("s", Tensor::scalar(5.0f));
  Value x = g.constant(Tensor({1.0f, 2.0f}));
  g.output("0", stack({x, v}));
  g.output("1", stack({v, x}, 1));
  g.output("2", stack({s, 7, g.constant(Tensor::scalar(6.0f))}));
  Program p = run(g);
  EXPECT_EQ(p.output("0").at(2), 3);
  EXPECT_EQ(p.output("1").at(1), 1);
  EXPECT_EQ(p.output("2").at(1), 7);
  EXPECT_THROW(stack({v, s}), Error);  // neither names a graph
}

TEST(OpNumbers, OfRandomOpsAreChecked) {
  Graph g;
  Value like = g.constant(Tensor(f32, {3}));
  for (auto [first, second] :
       std::vector<std::pair<double, double>>{{1, 0}, {0, 1e39}, {-3e38, 3e38}, {kNan, 1}, {0, kInf}})
    EXPECT_THROW(random_uniform(like, first, second), Error) << first << " " << second;
  for (auto [first, second] : std::vector<std::pair<double, double>>{{0, -1}, {1e39, 1}, {0, kNan}, {-kInf, 1}})
    EXPECT_THROW(random_normal(g, f32, {3}, first, second), Error) << first << " " << second;
  random_uniform(g, f64, {3}, -1e200, 1e200);
  random_normal(like, 1e30, 0);
}

}  // namespace
}  // namespace graphsink::op_number_test
