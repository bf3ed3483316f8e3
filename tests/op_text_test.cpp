// The ops of text models where the op table does not reach: extreme numbers, refusals, determinism.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "graphsink/graphsink.h"
#include "test_ops.h"

namespace graphsink {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class TextOps : public ::testing::TestWithParam<DeviceId> {
 protected:
  // The outputs "0", "1", ... of a graph after one step.
  std::vector<Tensor> run(const Graph& g, std::size_t outputs) {
    Program program = compile(g, {.target = GetParam()});
    program.run(interactive);
    std::vector<Tensor> result;
    for (std::size_t i = 0; i < outputs; ++i) result.push_back(program.read_output(std::to_string(i)));
    return result;
  }
};

std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, TextOps, ::testing::ValuesIn(testing::devices()), device_name);

Tensor floats(const Shape& shape, const std::vector<float>& values) {
  Tensor t(f32, shape);
  std::copy(values.begin(), values.end(), t.as<float>().begin());
  return t;
}

TEST_P(TextOps, SoftmaxOfLargeAndInfiniteNumbers) {
  for (int axis : {1, 0}) {
    Graph g;
    Value x = g.constant(floats({3, 3}, {1e4f, 1e4f, -1e4f, -kInfinity, 0, 0, -kInfinity, 1e38f, -1e38f}));
    if (axis == 0) x = transpose(x);
    Value y = softmax(x, axis), z = log_softmax(x, axis);
    g.output("0", axis == 0 ? transpose(y) : y);
    g.output("1", axis == 0 ? transpose(z) : z);
    std::vector<Tensor> seen = run(g, 2);
    auto log2 = static_cast<float>(-std::log(2.0));
    std::vector<float> wanted{0.5f, 0.5f, 0, 0, 0.5f, 0.5f, 0, 1, 0};
    std::vector<float> wanted_log{log2, log2, -2e4f + log2, -kInfinity, log2, log2, -kInfinity, 0, -2e38f};
    for (std::size_t i = 0; i < 9; ++i) {
      EXPECT_FLOAT_EQ(seen[0].as<float>()[i], wanted[i]) << i;
      EXPECT_FLOAT_EQ(seen[1].as<float>()[i], wanted_log[i]) << i;
    }
  }
}

TEST_P(TextOps, SoftmaxOfALongMaskedRow) {
  Graph g;
  Tensor x = Tensor::full(f32, {1, 3000}, -kInfinity);  // most threads of a block have nothing but -inf
  x.as<float>()[17] = 3;
  x.as<float>()[2999] = 3;
  g.output("0", softmax(g.constant(x)));
  Tensor y = run(g, 1)[0];
  for (std::size_t i = 0; i < 3000; ++i) ASSERT_EQ(y.as<float>()[i], i == 17 || i == 2999 ? 0.5f : 0.0f) << i;
}

TEST_P(TextOps, SoftmaxOfANanIsNan) {
  for (std::size_t at : {0, 5, 39}) {
    Graph g;
    Tensor x = Tensor::full(f32, {1, 40}, 1);
    x.as<float>()[at] = std::numeric_limits<float>::quiet_NaN();
    g.output("0", softmax(g.constant(x)));
    g.output("1", softmax(reshape(g.constant(x), {40, 1}), 0));
    g.output("2", reshape(softmax(reshape(g.constant(x), {1, 40, 1}), 1), {40}));
    for (const Tensor& y : run(g, 3))
      for (float v : y.as<float>()) ASSERT_TRUE(std::isnan(v)) << at;
  }
}

TEST_P(TextOps, NormsOfNumbersFarFromZero) {
  Graph g;
  Tensor x(f32, {2, 2000});  // 4096 -+ 1: mean 4096 and variance 1, all of it exact
  for (std::size_t i = 0; i < 4000; ++i) x.as<float>()[i] = 4096.0f + (i % 2 ? 1.0f : -1.0f);
  Value gain = g.constant(Tensor::full(f32, {2000}, 2)), bias = g.constant(Tensor::full(f32, {2000}, 10));
  g.output("0", layer_norm(g.constant(x), gain, bias, 0.0));
  Tensor y = run(g, 1)[0];
  for (std::size_t i = 0; i < 4000; ++i) ASSERT_FLOAT_EQ(y.as<float>()[i], i % 2 ? 12.0f : 8.0f) << i;
}

TEST(TextOps, RefuseWhatTheyCannotTake) {
  Graph g;
  Value x = g.constant(Tensor::full(f32, {2, 3}, 1)), three = g.constant(Tensor::full(f32, {3}, 1));
  Value two = g.constant(Tensor::full(f32, {2}, 1)), whole = g.constant(Tensor::full(i32, {2, 3}, 1));
  EXPECT_THROW(softmax(x, 2), Error);
  EXPECT_THROW(softmax(x, -3), Error);
  EXPECT_THROW(softmax(g.constant(Tensor::full(f32, {}, 1))), Error);
  EXPECT_THROW(log_softmax(whole), Error);
  EXPECT_THROW(layer_norm(x, two, three), Error);
  EXPECT_THROW(layer_norm(x, three, two), Error);
  EXPECT_THROW(layer_norm(x, three, three, -1.0), Error);
  EXPECT_THROW(rms_norm(x, two), Error);
  EXPECT_THROW(rms_norm(x, cast(three, f64)), Error);
}

}  // namespace
}  // namespace graphsink
