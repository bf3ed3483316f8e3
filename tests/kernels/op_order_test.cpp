// Ops that compare elements, or go along an axis, where the op table does not reach: NaNs, equals, refusals, open
// dimensions.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "test_ops.h"

namespace graphsink::op_order_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class OrderOps : public ::testing::TestWithParam<DeviceId> {
 protected:
  // An output of a graph, after one step.
  Tensor run(Graph& g, const Value& output) {
    std::string name = "y" + std::to_string(outputs_++);
    g.output(name, output);
    Program program = compile(g, {.target = GetParam()});
    program.run(interactive);
    return program.output(name);
  }

 private:
  int outputs_ = 0;
};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, OrderOps, ::testing::ValuesIn(testing::devices()), device_name);

// Lengths that a thread, a warp, a block and several blocks take.
constexpr std::int64_t kLengths[] = {5, 200, 1031, 40000};

void expect_elements(const Tensor& seen, const std::vector<double>& wanted) {
  ASSERT_EQ(seen.shape().size(), static_cast<std::int64_t>(wanted.size()));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    double at = seen.at(static_cast<std::int64_t>(i));
    EXPECT_TRUE(at == wanted[i] || (std::isnan(at) && std::isnan(wanted[i]))) << i << ": " << at;
  }
}

TEST_P(OrderOps, AccuracyTakesTheFirstLargestLogitAndNoLabelOutsideOfTheClasses) {
  Graph g;
  const Value logits = g.constant(Tensor({4, 3}, std::vector<double>{0, 1, 1, kNan, 2, 0, 1, 2, kInfinity, 1, 0, 0}));
  auto share = [&](const std::vector<std::int32_t>& labels) {
    return run(g, accuracy(logits, g.constant(Tensor({4}, labels)))).at(0);
  };
  EXPECT_EQ(share({1, 0, 2, 0}), 1);
  EXPECT_EQ(share({2, 1, 2, 0}), 0.5);
  EXPECT_EQ(share({-1, 3, 100, 0}), 0.25);
  const Value x = g.input("x", f32, {open(4), 3}), labels = g.input("labels", i32, {open(4)});
  EXPECT_EQ(accuracy(x, labels).type(), (TensorType{f32, {}}));
  EXPECT_EQ(accuracy(x, labels, equal(labels, 1)).type(), (TensorType{f32, {}}));
}

// Of rows that are reduced in parts on the CPU, and of those that are almost as long.
TEST_P(OrderOps, ReductionsOfLongRowsTakeEachTermOnce) {
  for (std::int64_t length : {32767, 32768, 32769, 49152, 100001}) {
    for (DType dtype : {f32, f64, i32}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(length));
      Tensor data(f64, {2, length});
      double sums[2] = {};
      for (std::int64_t i = 0; i < 2 * length; ++i) {
        data.as<double>()[static_cast<std::size_t>(i)] = static_cast<double>(i * 7919 % 11 - 3);
        sums[i / length] += static_cast<double>(i * 7919 % 11 - 3);
      }
      // The largest comes first in the last part, and once more at the end; the other row has it in its first part.
      const std::int64_t first = std::min<std::int64_t>(length - 1, length / 16384 * 16384);
      for (std::int64_t i : {first, length - 1, length + 5, 2 * length - 1}) {
        sums[i / length] += 100 - data.as<double>()[static_cast<std::size_t>(i)];
        data.as<double>()[static_cast<std::size_t>(i)] = 100;
      }
      Graph g;
      Value x = g.constant(data.to(dtype));
      expect_elements(run(g, sum(x, {1})), {sums[0], sums[1]});
      expect_elements(run(g, sum(x)), {sums[0] + sums[1]});
      expect_elements(run(g, max(x, {1})), {100, 100});
      expect_elements(run(g, argmax(x, 1)), {static_cast<double>(first), 5});
      expect_elements(run(g, any(equal(x, 100), {1})), {1, 1});
      expect_elements(run(g, all(less(x, 100), {1})), {0, 0});
    }
  }
}

TEST_P(OrderOps, ANanIsTheLargestAndTheSmallest) {
  for (std::int64_t length : kLengths) {
    for (DType dtype : {f32, f64, f16, bf16}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(length));
      Tensor data(f64, {length});
      for (std::int64_t i = 0; i < length; ++i) data.as<double>()[static_cast<std::size_t>(i)] = double(i % 7);
      data.as<double>()[0] = kInfinity;
      data.as<double>()[1] = -kInfinity;
      for (std::int64_t nan : {length / 2, length - 1}) data.as<double>()[static_cast<std::size_t>(nan)] = kNan;
      Graph g;
      Value x = g.constant(data.to(dtype));
      for (const Value& extreme : {max(x), min(x)}) expect_elements(run(g, extreme), {kNan});
      for (const Value& place : {argmax(x, 0), argmin(x, 0)})
        expect_elements(run(g, place), {static_cast<double>(length / 2)});
    }
  }
}

TEST_P(OrderOps, TheFirstOfEqualsIsTheirPlace) {
  for (std::int64_t length : kLengths) {
    for (double equal : {0.0, kInfinity, -kInfinity}) {
      SCOPED_TRACE(length);
      Graph g;
      Value x = g.constant(Tensor::full(f32, {2, length}, equal));
      EXPECT_EQ(argmax(x, 1).dtype(), i32);
      expect_elements(run(g, argmax(x, 1)), {0, 0});
      expect_elements(run(g, argmin(x, 1)), {0, 0});
      expect_elements(run(g, max(x)), {equal});
    }
  }
}

TEST_P(OrderOps, EqualsShareTheGradientOfAnExtreme) {
  for (DType dtype : {f32, f64, f16, bf16}) {
    for (bool keep_axes : {false, true}) {
      Graph g;
      Tensor data = Tensor({1.0, 3.0, 3.0, 2.0, 2.0, kNan}).to(dtype);
      Value x = reshape(g.constant(data), {2, 3});
      expect_elements(run(g, grad(sum(max(x, {1}, {.keep_axes = keep_axes})), {x})[0]), {0, 0.5, 0.5, 0, 0, 1});
      expect_elements(run(g, grad(sum(min(x, {-1}, {.keep_axes = keep_axes})), {x})[0]), {1, 0, 0, 0, 0, 1});
    }
    // More equals than a half can count.
    Graph g;
    Value x = g.constant(Tensor::full(dtype, {3, 65536}, -1.0));
    expect_elements(run(g, slice(flatten(grad(sum(max(x, {1})), {x})[0], 0), {65535}, {65537})), {0x1p-16, 0x1p-16});
  }
}

TEST_P(OrderOps, TopKPutsNansFirstAndInfinitiesWhereTheyBelong) {
  for (std::int64_t length : {6, 5000}) {
    Graph g;
    Tensor data = Tensor::full(f32, {length}, -kInfinity);
    const std::vector<float> last{1.0f, float(kNan), float(kInfinity), float(kNan), 1.0f};
    std::copy(last.begin(), last.end(), data.as<float>().end() - 5);
    auto [values, indices] = top_k(g.constant(data), 6);
    expect_elements(run(g, values), {kNan, kNan, kInfinity, 1, 1, -kInfinity});
    auto at = static_cast<double>(length - 5);
    expect_elements(run(g, indices), {at + 1, at + 3, at + 2, at, at + 4, 0});
  }
}

TEST_P(OrderOps, TopKFollowsOpenDimensions) {
  Graph g;
  Value x = g.input("x", f64, {open(4)});
  g.output("gradient", grad(sum(top_k(x, 2).values * g.constant(Tensor({3.0, 5.0}))), {x})[0]);
  Program p = compile(g, {.target = GetParam()});
  for (std::int64_t length : {4, 3000, 2}) {
    Tensor data(f64, {length});
    for (std::int64_t i = 0; i < length; ++i) data.as<double>()[static_cast<std::size_t>(i)] = double(i);
    p.write(x, data);
    p.run(interactive);
    Tensor gradient = p.output("gradient");
    EXPECT_EQ(gradient.at(length - 1), 3.0);
    EXPECT_EQ(gradient.at(length - 2), 5.0);
    for (std::int64_t i = 0; i < length - 2; ++i) ASSERT_EQ(gradient.at(i), 0.0);
  }
}

// Sums in half precision are rounded once.
TEST_P(OrderOps, CumsumOfHalvesAndOfIntegersThatWrap) {
  Graph g;
  Value ones = g.constant(Tensor::full(f16, {4096}, 1.0));
  expect_elements(run(g, slice(cumsum(ones, 0), {4095}, {4096})), {4096});
  Value most = g.constant(Tensor::full(i32, {3}, 2147483647.0));
  expect_elements(run(g, cumsum(most, 0)), {2147483647, -2, 2147483645});
  expect_elements(run(g, cumsum(most, 0, {.exclusive = true, .reverse = true})), {-2, 2147483647, 0});
}

TEST_P(OrderOps, ExtremesFollowOpenDimensions) {
  Graph g;
  Value x = g.input("x", f64, {open(4), 3});
  g.output("gradient", grad(sum(max(x, {0}) * min(x, {0}, {.keep_axes = true})), {x})[0]);
  g.output("place", argmax(x, 0));
  Program p = compile(g, {.target = GetParam()});
  for (std::int64_t batch : {4, 9, 1}) {
    Tensor data(f64, {batch, 3});
    for (std::int64_t i = 0; i < 3 * batch; ++i) data.as<double>()[static_cast<std::size_t>(i)] = 1.0 + double(i);
    p.write(x, data);
    p.run(interactive);
    Tensor gradient = p.output("gradient");
    ASSERT_EQ(to_string(gradient.shape()), to_string(data.shape()));
    EXPECT_EQ(p.output("place").at(2), double(batch - 1));
    double first = data.at(2), last = data.at(3 * batch - 1);
    EXPECT_EQ(gradient.at(3 * batch - 1), batch == 1 ? first + last : first);
    EXPECT_EQ(gradient.at(2), batch == 1 ? first + last : last);
  }
}

struct Refusal {
  std::string op, problem;  // the latter part of the message
  std::function<void(const Value&)> call;
};

TEST(OrderRefusals, NameTheOpAndTheProblem) {
  Graph g;
  Value x = g.constant(Tensor(f32, {2, 3})), none = g.constant(Tensor(f32, {2, 0})), flag = g.constant(Tensor({true}));
  for (const auto& [op, problem, call] : std::initializer_list<Refusal>{
           {"max", "there is no axis 2: f32[2, 3]", [](const Value& v) { max(v, {2}); }},
           {"min", "axis -1 is named twice",
            [](const Value& v) {
              min(v, {1, -1});
            }},
           {"argmax", "there is no axis -3", [](const Value& v) { argmax(v, -3); }},
           {"max", "there is nothing to choose from: f32[2, 0]", [&](const Value&) { max(none); }},
           {"argmin", "there is nothing to choose from", [&](const Value&) { argmin(none, 1); }},
           {"min", "takes f32, f64, f16, bf16, i32, i64, u8: bool", [&](const Value&) { min(flag); }},
           {"top_k", "k is 0", [](const Value& v) { top_k(v, 0); }},
           {"top_k", "k is 1025", [](const Value& v) { top_k(v, 1025); }},
           {"top_k", "k is 4, and the axis has fewer elements: f32[2, 3]", [](const Value& v) { top_k(v, 4); }},
           {"top_k", "there is no axis 2", [](const Value& v) { top_k(v, 1, 2); }},
           {"top_k", "takes f32, f64, f16, bf16, i32, i64, u8: bool", [&](const Value&) { top_k(flag, 1); }},
           {"cumsum", "there is no axis 2", [](const Value& v) { cumsum(v, 2); }},
           {"cumsum", "takes f32, f64, f16, bf16, i32, i64: bool", [&](const Value&) { cumsum(flag, 0); }},
           {"argmax", "takes f32, f64, f16, bf16, i32, i64, u8: bool", [&](const Value&) { argmax(flag, 0); }},
       }) {
    SCOPED_TRACE(op + ": " + problem);
    try {
      call(x);
      ADD_FAILURE() << "not refused";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), op);
      EXPECT_NE(e.problem().find(problem), std::string::npos) << e.what();
      EXPECT_FALSE(e.remedy().empty());
    }
  }
  EXPECT_EQ(to_string(max(none, {0}).shape()), "[0]");
}

}  // namespace
}  // namespace graphsink::op_order_test
