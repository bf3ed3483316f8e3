// The ops of text models where the op table does not reach: extreme numbers, refusals, determinism.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "graphsink/graphsink.h"
#include "test_ops.h"

namespace graphsink::op_text_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class TextOps : public ::testing::TestWithParam<DeviceId> {
 protected:
  // The outputs "0", "1", ... of a graph after one step.
  std::vector<Tensor> run(const Graph& g, std::size_t outputs) {
    Program program = compile(g, {.target = GetParam()});
    program.run(interactive);
    std::vector<Tensor> result;
    for (std::size_t i = 0; i < outputs; ++i) result.push_back(program.output(std::to_string(i)));
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

TEST_P(TextOps, AttentionOfLargeScores) {
  Graph g;
  constexpr std::size_t kKeys = 300;
  Tensor q = Tensor::full(f32, {1, 1, 1, 1}, 100), k(f32, {1, 1, kKeys, 1}), v(f32, {1, 1, kKeys, 1});
  for (std::size_t j = 0; j < kKeys; ++j) {
    k.as<float>()[j] = static_cast<float>(j % 200) * 100;  // the largest score is far away, and not the last
    v.as<float>()[j] = static_cast<float>(j);
  }
  Value out = attention(g.constant(q), g.constant(k), g.constant(v), {.scale = 1});
  g.output("0", out);
  EXPECT_EQ(run(g, 1)[0].as<float>()[0], 199);
}

Tensor heads(std::int64_t time, std::uint64_t seed) { return Tensor::uniform({2, 2, time, 20}, seed, -1, 1); }

TEST_P(TextOps, CausalAttentionDoesNotSeeWhatComesLater) {
  constexpr std::int64_t kQueries = 90, kKeys = 150, kChanged = 101;  // query 41 is the first that sees key 101
  std::vector<Tensor> seen;
  for (float change : {0.0f, 5.0f}) {
    Graph g;
    Tensor k = heads(kKeys, 2), v = heads(kKeys, 3);
    for (Tensor* t : {&k, &v})
      for (std::int64_t i = 0; i < t->shape().size(); ++i)
        if (i / 20 % kKeys >= kChanged) t->as<float>()[static_cast<std::size_t>(i)] += change;
    g.output("0", attention(g.constant(heads(kQueries, 1)), g.constant(k), g.constant(v), {.causal = true}));
    seen.push_back(run(g, 1)[0]);
  }
  for (std::int64_t i = 0; i < seen[0].shape().size(); ++i) {
    bool sees_it = i / 20 % kQueries + kKeys - kQueries >= kChanged;
    ASSERT_EQ(seen[0].at(i) != seen[1].at(i), sees_it) << i / 20 % kQueries;
  }
}

TEST_P(TextOps, GiveTheSameBitsInAllModes) {
  std::vector<std::vector<Tensor>> results;
  for (Mode mode : {interactive_serial, interactive_parallel, sink}) {
    Graph g;
    Value q = g.constant(heads(70, 1)), k = g.constant(heads(140, 2)), v = g.constant(heads(140, 3));
    Value gain = g.constant(Tensor::uniform({20}, 4)), bias = g.constant(Tensor::uniform({20}, 5));
    Value y = rms_norm(layer_norm(softmax(attention(q, k, v, {.causal = true}), 2), gain, bias), gain);
    std::vector<Value> outputs = grad(sum(y * g.constant(heads(70, 6))), {q, k, v, gain, bias});
    outputs.push_back(y);
    for (std::size_t i = 0; i < outputs.size(); ++i) g.output(std::to_string(i), outputs[i]);
    Program program = compile(g, {.target = GetParam()});
    program.run(mode, {.steps = 2});
    results.emplace_back();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      results.back().push_back(program.output(std::to_string(i)));
      const Tensor &a = results[0][i], &b = results.back()[i];
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.bytes()), 0) << to_string(mode) << ", output " << i;
    }
  }
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
  auto make = [&](const Shape& shape, DType dtype = f32) { return g.constant(Tensor(dtype, shape)); };
  Value q = make({1, 2, 3, 4});
  EXPECT_THROW(attention(q, q, make({1, 2, 4, 4})), Error);
  EXPECT_THROW(attention(q, make({1, 2, 4, 5}), make({1, 2, 4, 5})), Error);
  EXPECT_THROW(attention(q, make({1, 1, 4, 4}), make({1, 1, 4, 4})), Error);
  EXPECT_THROW(attention(q, make({1, 2, 4, 4}, f64), make({1, 2, 4, 4}, f64)), Error);
  EXPECT_THROW(attention(x, x, x), Error);
  Value wide = make({1, 1, 1, 129});
  EXPECT_THROW(attention(wide, wide, wide), Error);
}

}  // namespace
}  // namespace graphsink::op_text_test
