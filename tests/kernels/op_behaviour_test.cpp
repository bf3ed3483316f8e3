// Ops that fail steps, follow open dimensions or stop gradients: what rows of the op table do not show.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "ir/system_ops.h"
#include "passes/passes.h"
#include "test_ops.h"

namespace graphsink::op_behaviour_test {
namespace {

constexpr Mode kModes[] = {interactive_serial, interactive_parallel, sink};

class OpBehaviour : public ::testing::TestWithParam<DeviceId> {
 protected:
  Program compile(const Graph& g, CompileOptions options = {}) {
    options.target = GetParam();
    return graphsink::compile(g, options);
  }
  std::vector<Tensor> run(const Graph& g, int outputs) {
    Program program = compile(g);
    program.run(interactive);
    std::vector<Tensor> result;
    for (int i = 0; i < outputs; ++i) result.push_back(program.output(std::to_string(i)));
    return result;
  }
};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, OpBehaviour, ::testing::ValuesIn(testing::devices()), device_name);

std::vector<double> elements(const Tensor& x) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < x.shape().size(); ++i) result.push_back(x.at(i));
  return result;
}
using Doubles = std::vector<double>;

TEST_P(OpBehaviour, RoundingCanBeStraightThrough) {
  Graph g;
  Value x = g.constant(Tensor({0.2, 1.7, -2.5}));
  Value y = x + stop_gradient(round(x) - x);
  g.output("0", y);
  g.output("1", grad(sum(y * y), {x})[0]);
  std::vector<Tensor> seen = run(g, 2);
  EXPECT_EQ(elements(seen[0]), (Doubles{0, 2, -2}));
  EXPECT_EQ(elements(seen[1]), (Doubles{0, 4, -4}));
}

TEST_P(OpBehaviour, AnIndexOutsideTheAxisFailsTheStep) {
  for (std::int32_t bad : {-1, 3, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()}) {
    for (bool takes : {false, true}) {
      SCOPED_TRACE(std::string(takes ? "take_along_axis " : "one_hot ") + std::to_string(bad));
      Graph g;
      Value indices = g.input("i", i32, {2, 2});
      Variable kept("kept", Tensor::full(f32, {2, 3}, 1.0));
      Value y = takes ? take_along_axis(g.value(kept), indices, 1) : one_hot(indices, 3);
      Value slope = takes ? grad(sum(y), {kept})[0] : sum(y, {1});
      g.assign(kept, slope);
      Program p = compile(g);
      p.write(indices, std::vector<std::int32_t>{1, bad, 2, 2});
      p.run(interactive);
      try {
        p.sync();
        ADD_FAILURE() << "the step did not fail";
      } catch (const Error& e) {
        EXPECT_EQ(e.op(), takes ? "take_along_axis" : "one_hot") << e.what();
        EXPECT_NE(std::string(e.what()).find("index " + std::to_string(bad)), std::string::npos) << e.what();
      }
      EXPECT_EQ(elements(kept.read()), Doubles(6, 1.0));
      p.write(indices, std::vector<std::int32_t>{1, 0, 2, 2});
      p.run(interactive);
      EXPECT_EQ(elements(kept.read()), (Doubles{1, 1, 0, 0, 0, 2}));
    }
  }
}

TEST_P(OpBehaviour, IgnoredTargetsNeedNotBeClasses) {
  constexpr std::int64_t kIgnored = -100;
  for (bool per_row : {false, true}) {
    Graph g;
    Value logits = g.constant(Tensor({2, 2}, std::vector<double>{0, 0, 3, 5})), targets = g.input("t", i64, {2});
    Value loss = cross_entropy(logits, targets, {.ignore_index = kIgnored, .per_row = per_row});
    g.output("0", loss);
    g.output("1", grad(sum(loss), {logits})[0]);
    Program p = compile(g);
    p.write(targets, std::vector<std::int64_t>{1, kIgnored});
    p.run(interactive);
    EXPECT_NEAR(p.output("0").at(0), std::log(2.0), 1e-15);
    EXPECT_EQ(elements(p.output("1")), (Doubles{0.5, -0.5, 0, 0}));
    p.write(targets, std::vector<std::int64_t>(2, kIgnored));
    p.run(interactive);
    double none = p.output("0").at(0);
    EXPECT_TRUE(per_row ? none == 0 : std::isnan(none)) << none;
    EXPECT_EQ(elements(p.output("1")), Doubles(4, 0.0));
    p.write(targets, std::vector<std::int64_t>{1, kIgnored + 1});
    p.run(interactive);
    EXPECT_THROW(p.sync(), Error);
  }
}

TEST_P(OpBehaviour, CrossEntropyOfManyRowsCountsThoseThatAreNotIgnored) {
  constexpr std::int64_t kRows = 3000, kClasses = 40;  // several blocks
  Graph g;
  Tensor targets(i32, {kRows}), logits = Tensor::uniform({kRows, kClasses}, 3);
  std::int64_t counted = 0;
  double sum = 0;
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::int64_t target = row * 7 % kClasses;
    targets.as<std::int32_t>()[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(target);
    if (target == 5) continue;
    double total = 0;
    for (std::int64_t c = 0; c < kClasses; ++c) total += std::exp(logits.at(row * kClasses + c));
    sum += std::log(total) - logits.at(row * kClasses + target);
    ++counted;
  }
  ASSERT_LT(counted, kRows);
  g.output("0", cross_entropy(g.constant(logits), g.constant(targets), {.ignore_index = 5}));
  EXPECT_NEAR(run(g, 1)[0].at(0), sum / static_cast<double>(counted), 1e-5);
}

TEST_P(OpBehaviour, AQueryThatSeesNothingGivesZeros) {
  Graph g;
  auto counted = [&](const Shape& shape) {
    Tensor x(f64, shape);
    for (std::size_t i = 0; i < x.as<double>().size(); ++i) x.as<double>()[i] = std::sin(static_cast<double>(i));
    return g.constant(x);
  };
  Value q = counted({1, 1, 2, 3}), k = counted({1, 1, 4, 3}), v = counted({1, 1, 4, 3});
  Value mask = g.constant(Tensor({2, 4}, std::vector<double>{0, 0, 0, 0, 1, 0, 0, 0})) > 0.5;
  Value y = attention(q, k, v, mask);
  g.output("0", y);
  std::vector<Value> gradients = grad(sum(y), {q, k, v});
  for (int i = 0; i < 3; ++i) g.output(std::to_string(i + 1), gradients[static_cast<std::size_t>(i)]);
  std::vector<Tensor> seen = run(g, 4);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(seen[0].at(i), 0);
    EXPECT_NEAR(seen[0].at(3 + i), std::sin(static_cast<double>(i)), 1e-15);  // the first key alone
  }
  EXPECT_EQ(elements(seen[1]), Doubles(6, 0.0));
  EXPECT_EQ(elements(seen[2]), Doubles(12, 0.0));
  Doubles first_key(12, 0.0);
  std::fill_n(first_key.begin(), 3, 1.0);
  EXPECT_EQ(elements(seen[3]), first_key);
}

// The same ops on x [batch, 4, length] of fixed and of open sizes; outputs "0", "1", ...
int add_outputs(Graph& g, const Value& x) {
  Value gain = g.constant(Tensor({1.0, 2.0, -1.0, 0.5})), bias = g.constant(Tensor({0.0, 1.0, 2.0, 3.0}));
  Value heads = unsqueeze(x, 1), positions = arange(x, 2, f64);
  std::vector<Value> values{
      var(x, {0, 2}, {.correction = 1}),
      var(x, {}, {.correction = 1}),
      prod(x, {-1}),
      logsumexp(x, {0}),
      all(greater(x, -2.0), {0, 2}),
      sort(x, 2, {.descending = true}).values,
      tril(x, 1),
      batch_norm(x, gain, bias).y,
      group_norm(x, 2, gain, bias),
      attention(heads, heads, heads, g.constant(Tensor({0.25})), {.causal = true, .scale = 0.5}),
      x * positions,
      one_hot(cast(positions, i32), 64, f64),
      take_along_axis(x, argmax(x, 2, {.keep_axes = true}), 2),
      bernoulli(clamp(x * 0.0, 0, 1)),
  };
  Value loss = mean(x * 0.0);
  for (const Value& value : values)
    if (value.dtype() == f64) loss = loss + mean(value * value);
  values.push_back(grad(loss, {x})[0]);
  for (std::size_t i = 0; i < values.size(); ++i) g.output(std::to_string(i), values[i]);
  return static_cast<int>(values.size());
}

TEST_P(OpBehaviour, FollowsOpenDimensionsWithTheSameBitsInEveryMode) {
  Graph open_graph;
  Value x = open_graph.input("x", f64, {open(2), 4, open(5)});
  int outputs = add_outputs(open_graph, x);
  Program followed = compile(open_graph);
  for (auto [batch, length] : {std::array<std::int64_t, 2>{2, 5}, {3, 1}, {1, 7}, {5, 33}}) {
    SCOPED_TRACE(std::to_string(batch) + ", " + std::to_string(length));
    Tensor data(f64, {batch, 4, length});
    for (std::size_t i = 0; i < data.as<double>().size(); ++i)
      data.as<double>()[i] = std::sin(static_cast<double>(i) + 0.5);
    Graph fixed;
    Value same = fixed.input("x", f64, {batch, 4, length});
    ASSERT_EQ(add_outputs(fixed, same), outputs);
    Program known = compile(fixed);
    known.write(same, data);
    known.run(interactive);
    followed.write(x, data);
    std::vector<Tensor> first;
    for (Mode mode : kModes) {
      followed.run(mode);
      for (int i = 0; i < outputs; ++i) {
        SCOPED_TRACE("output " + std::to_string(i) + " " + std::string(to_string(mode)));
        Tensor seen = followed.output(std::to_string(i)), wanted = known.output(std::to_string(i));
        ASSERT_EQ(to_string(seen.type()), to_string(wanted.type()));
        for (std::int64_t k = 0; k < seen.shape().size(); ++k)
          ASSERT_NEAR(seen.at(k), wanted.at(k), 1e-12 * std::max(1.0, std::abs(wanted.at(k)))) << k;
        if (mode == kModes[0]) first.push_back(seen);
        ASSERT_EQ(std::memcmp(seen.data(), first[static_cast<std::size_t>(i)].data(), seen.bytes()), 0);
      }
    }
  }
}

TEST(OpLabels, HoldForAllNodesOfAnOp) {
  Graph g;
  Value x = g.input("x", f32, {2, 4, 3}), c = g.constant(Tensor::full(f32, {4}, 1)), q = unsqueeze(x, 1);
  g.output("var", var(x, {0}, {.correction = 1}, on_cpu));
  g.output("batch_norm", batch_norm(x, c, c, 1e-5, on_cpu).y);
  g.output("group_norm", group_norm(x, 2, c, c, 1e-5, on_cpu));
  g.output("attention", attention(q, q, q, 0.5, {.causal = true}, on_cpu));
  g.output("bernoulli", bernoulli(x, on_cpu));
  Plan plan = make_plan(g, Target::cuda13(), system_ops(), {}, {});
  std::string on_the_device;
  for (const PlanNode& node : plan.nodes)
    if (!node.on_host && node.op->views.empty()) on_the_device += " " + std::string(node.op->name);
  EXPECT_EQ(on_the_device, " begin_step check_host end_step");
}

TEST_P(OpBehaviour, ArangeOfNumbers) {
  Graph g;
  g.output("0", arange(g, f32, 0, 1, 0.25));
  g.output("1", arange(g, i64, 5, -1, -2));
  g.output("2", arange(g, u8, 250, 256));
  g.output("3", arange(g, i32, 3, 3));
  std::vector<Tensor> seen = run(g, 4);
  EXPECT_EQ(elements(seen[0]), (Doubles{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(elements(seen[1]), (Doubles{5, 3, 1}));
  EXPECT_EQ(elements(seen[2]), (Doubles{250, 251, 252, 253, 254, 255}));
  EXPECT_EQ(to_string(seen[2].type()), "u8[6]");
  EXPECT_EQ(to_string(seen[3].type()), "i32[0]");
}

TEST_P(OpBehaviour, RandomIntegersAndBooleansAreAsLikelyAsAsked) {
  constexpr std::int64_t kCount = 60000;
  Graph g;
  g.output("0", randint(g, i32, {kCount}, -3, 3));
  g.output("1", randint(g, i64, {kCount}, std::int64_t{1} << 40, (std::int64_t{1} << 40) + 6));
  g.output("2", bernoulli(g, {kCount}, 0.3));
  g.output("3", randint(g, i32, {kCount}, std::numeric_limits<std::int32_t>::min(), std::int64_t{1} << 31));
  std::vector<Tensor> seen = run(g, 4);
  for (int i : {0, 1}) {
    std::array<std::int64_t, 6> counts{};
    double low = i == 0 ? -3 : 0x1p40;
    for (double x : elements(seen[static_cast<std::size_t>(i)])) {
      ASSERT_GE(x, low);
      ASSERT_LT(x, low + 6);
      ++counts[static_cast<std::size_t>(x - low)];
    }
    for (std::int64_t count : counts)
      EXPECT_NEAR(static_cast<double>(count), kCount / 6.0, 5 * std::sqrt(kCount / 6.0));
  }
  double ones = 0, negative = 0, bits = 0;
  for (double x : elements(seen[2])) ones += x;
  for (double x : elements(seen[3])) {
    negative += x < 0;
    bits += static_cast<double>(static_cast<std::int64_t>(x) & 1);
  }
  EXPECT_NEAR(ones, 0.3 * kCount, 5 * std::sqrt(0.21 * kCount));
  EXPECT_NEAR(negative, 0.5 * kCount, 5 * std::sqrt(0.25 * kCount));
  EXPECT_NEAR(bits, 0.5 * kCount, 5 * std::sqrt(0.25 * kCount));
}

TEST_P(OpBehaviour, RandomIntegersAreTheSameInAllModesAndDifferInEachStep) {
  std::vector<std::vector<double>> results;
  for (Mode mode : kModes) {
    Graph g;
    Value x = randint(g, i32, {64}, 0, 1 << 20);
    g.output("0", x);
    g.record("first", cast(slice(x, {0}, {1}), f32));
    Program p = compile(g, {.seed = 9});
    p.run(mode, {.steps = 5});
    results.push_back(elements(p.output("0")));
    EXPECT_EQ(results.back(), results[0]) << to_string(mode);
    std::vector<float> seen = p.records("first");
    ASSERT_EQ(seen.size(), 5u);
    for (std::size_t i = 0; i < 5; ++i)
      for (std::size_t j = 0; j < i; ++j) EXPECT_NE(seen[i], seen[j]);
  }
}

TEST_P(OpBehaviour, GradientsOfGradients) {
  Graph g;
  Value x = g.constant(Tensor({0.5, -1.0, 2.0})), places = g.constant(Tensor(i32, {3}));
  Value slope = grad(var(x), {x})[0];
  g.output("0", grad(sum(slope * slope), {x})[0]);  // slope = 2 (x - mean) / 3, so 8 / 9 (x - mean)
  Value first = grad(sum(exp(take_along_axis(x, places, 0))), {x})[0];
  g.output("1", grad(sum(first), {x})[0]);  // 3 exp(x) of the first, which is taken three times
  std::vector<Tensor> seen = run(g, 2);
  for (std::int64_t i = 0; i < 3; ++i)
    EXPECT_NEAR(seen[0].at(i), 8.0 / 9 * (std::array{0.5, -1.0, 2.0}[static_cast<std::size_t>(i)] - 0.5), 1e-14);
  EXPECT_NEAR(seen[1].at(0), 3 * std::exp(0.5), 1e-14);
  EXPECT_EQ(seen[1].at(1), 0);
}

}  // namespace
}  // namespace graphsink::op_behaviour_test
