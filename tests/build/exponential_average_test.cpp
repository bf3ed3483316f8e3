// Moving averages of parameters: against doubles of the test, in every way to run, and what is refused.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "messages.h"
#include "test_ops.h"

namespace graphsink::exponential_average_test {
namespace {

using testing::contains;
using testing::message_of;

class ExponentialAverage : public ::testing::TestWithParam<DeviceId> {};
INSTANTIATE_TEST_SUITE_P(Devices, ExponentialAverage, ::testing::ValuesIn(testing::devices()), [](const auto& info) {
  return std::string(info.param.kind == DeviceKind::cpu ? "cpu" : "cuda");
});

// w loses the fed x in every step.
struct Falling {
  Graph g;
  Variable w;
  Value x = g.feed("x", f32, {});

  explicit Falling(DType dtype) : w("w", Tensor({8.0, -2.0, 0.5}).to(dtype)) {
    sgd(sum(cast(g.value(w), f32)) * x, {w}, {.lr = 1});
  }
};

constexpr int kSteps = 6;
const std::vector<float> kFed{1, 0.5f, 0.25f, 2, 1, 0.125f};

TEST_P(ExponentialAverage, FollowsTheParametersAsTheStepsLeaveThem) {
  for (DType dtype : {f32, f64, f16, bf16}) {
    SCOPED_TRACE(to_string(dtype));
    Falling falling(dtype);
    const std::vector<Variable> averages = exponential_average(falling.g, {falling.w}, 0.75);
    ASSERT_EQ(averages.size(), 1u);
    EXPECT_EQ(averages[0].name(), "w.ema");
    EXPECT_EQ(averages[0].type(), (TensorType{dtype == f64 ? f64 : f32, {3}}));
    EXPECT_EQ(averages[0].read().at(0), 8.0);
    Program p = compile(falling.g, {.target = GetParam()});
    std::vector<double> expected{8, -2, 0.5};
    for (int step = 0; step < kSteps; ++step) {
      p.write(falling.x, std::vector<float>{kFed[static_cast<std::size_t>(step)]});
      p.run(sink);
      for (std::int64_t i = 0; i < 3; ++i) {
        double& average = expected[static_cast<std::size_t>(i)];
        average = 0.75 * average + 0.25 * falling.w.read().at(i);
        EXPECT_NEAR(averages[0].read().at(i), average, 1e-6) << step;
      }
    }
  }
}

TEST_P(ExponentialAverage, IsTheSameForSeveralStepsALaunch) {
  auto averaged = [&](int steps_per_launch, Mode mode) {
    Falling falling(f32);
    const Variable average = exponential_average(falling.g, {falling.w})[0];
    Program p = compile(falling.g, {.target = GetParam()});
    for (int step = 0; step < kSteps; step += steps_per_launch) {
      p.write(falling.x, std::vector<float>(kFed.begin() + step, kFed.begin() + step + steps_per_launch));
      p.run(mode, {.steps = steps_per_launch});
    }
    return average.read();
  };
  const Tensor expected = averaged(1, interactive_serial);
  EXPECT_NE(expected.at(0), 8.0);
  for (int steps : {1, 3, 6})
    EXPECT_EQ(std::memcmp(averaged(steps, sink).data(), expected.data(), expected.bytes()), 0) << steps;
}

TEST_P(ExponentialAverage, TakesADecayOfTheStep) {
  for (DType dtype : {f32, f64}) {
    Falling falling(dtype);
    Graph& g = falling.g;
    const Value step = cast(g.step(), f32);
    const Variable average = exponential_average(g, {falling.w}, minimum(0.5, (step + 1.0) / (step + 4.0)))[0];
    Program p = compile(g, {.target = GetParam()});
    double expected = 8;
    for (int i = 0; i < kSteps; ++i) {
      p.write(falling.x, std::vector<float>{1});
      p.run(sink);
      const double decay = std::min(0.5, (i + 1.0) / (i + 4.0));
      expected = decay * expected + (1 - decay) * falling.w.read().at(0);
      EXPECT_NEAR(average.read().at(0), expected, 1e-6) << i;
    }
  }
}

// Decays that round to 1 in f32 are below it in f64.
TEST_P(ExponentialAverage, TakesADecayInTheDtypeOfTheParameters) {
  constexpr double kDecay = 0.99999999;
  Falling falling(f64), rounded(f32);
  const Variable average = exponential_average(falling.g, {falling.w}, kDecay)[0];
  Program p = compile(falling.g, {.target = GetParam()});
  p.write(falling.x, std::vector<float>{1});
  p.run(sink);
  EXPECT_NEAR(average.read().at(0), 8 - (1 - kDecay), 1e-14);
  EXPECT_TRUE(contains(message_of([&] { exponential_average(rounded.g, {rounded.w}, kDecay); }), "decay is "));
}

TEST(ExponentialAverage, SaysWhatToDo) {
  Falling falling(f32);
  Graph& g = falling.g;
  const Variable w = falling.w, other("other", Tensor({1.0f})), count("count", Tensor({1}));
  auto refusal = [&](const std::vector<Variable>& parameters, Arg decay = 0.9) {
    return message_of([&] { exponential_average(g, parameters, decay); });
  };
  EXPECT_TRUE(contains(refusal({w, w}), "exponential_average: \"w\" is given twice")) << refusal({w, w});
  EXPECT_TRUE(contains(refusal({w, other}), "nothing in this graph has updated \"other\"")) << refusal({w, other});
  EXPECT_TRUE(contains(refusal({count}), "\"count\" is i32[1]")) << refusal({count});
  EXPECT_TRUE(contains(refusal({Variable()}), "refers to nothing")) << refusal({Variable()});
  for (double decay : {-0.1, 1.0, 1.5}) EXPECT_TRUE(contains(refusal({w}, decay), "decay is ")) << refusal({w}, decay);
  EXPECT_TRUE(contains(refusal({w}, g.input("d", f32, {2})), "decay is f32[2], not one f32 or f64"));
  for (const std::string& said : {refusal({w, w}), refusal({w, other}), refusal({w}, 1.0)})
    EXPECT_TRUE(contains(said, "exponential_average_test.cpp:")) << said;
  EXPECT_EQ(exponential_average(g, {w}).size(), 1u) << "what was refused has changed nothing";
}

}  // namespace
}  // namespace graphsink::exponential_average_test
