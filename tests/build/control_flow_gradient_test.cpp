// Gradients of graphs with branches and loops that are not refused: no path from the loss to what they are for leads
// through a body. Those that are refused are rows of the table of misuses.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "program_fixture.h"

namespace graphsink {
namespace {

class ControlFlowGradient : public testing::OnDevice {
 protected:
  // The first element of `value`, with x = {1, 2}.
  double run(const Value& value) {
    g.output("out", value);
    g.output("x", x);
    Program p = compile(g);
    p.write(x, std::vector<float>{1, 2});
    for (int i = 0; i < 2; ++i) p.run();
    return p.read_output("out").at(0);
  }

  Graph g;
  Value x = g.input("x", f32, {2});
  Variable w{"w", Tensor({3.0f, 4.0f})};
  Value v = g.value(w);
};
INSTANTIATE_TEST_SUITE_P(Devices, ControlFlowGradient, ::testing::ValuesIn(testing::devices()), testing::device_name);

TEST_P(ControlFlowGradient, APredicateHandsNoGradientOn) {
  Value y = if_(
      sum(x * v) > 0.0, [&] { return x * 5.0; }, [&] { return x * 7.0; });
  EXPECT_EQ(run(grad(sum(y * v), {w})[0]), 5.0);
}

TEST_P(ControlFlowGradient, AConditionOfALoopHandsNoGradientOn) {
  auto [y] = while_(
      {x}, [&](Value s) { return sum(s) < sum(v); }, [](Value s) { return s * 2.0; });
  EXPECT_EQ(run(grad(sum(y * v), {w})[0]), 4.0);
}

TEST_P(ControlFlowGradient, AStateThatDoesNotDependHandsNoGradientOn) {
  auto [y, z, n] = while_(
      {x, x, 0.0}, [](Value, Value, Value i) { return i < 3.0; },
      [&](Value s, Value t, Value i) {
        return std::array{s * 2.0, t * v, i + 1.0};
      });
  g.output("z", z);
  EXPECT_EQ(run(grad(sum(y * v), {w})[0]), 8.0);
}

TEST_P(ControlFlowGradient, ALoopMayTrainItsState) {
  auto [s, n] = while_(
      {x, 0.0}, [](Value, Value i) { return i < 4.0; },
      [&](Value p, Value i) {
        Value error = p - v;
        return std::array{p - grad(sum(error * error), {p})[0] * 0.25, i + 1.0};
      });
  g.output("n", n);
  EXPECT_EQ(run(s), 3.0 - 2.0 * std::pow(0.5, 4));
}

TEST_P(ControlFlowGradient, ALoopMayAddUpGradientsOfAParameter) {
  auto [total, n] = while_(
      {x * 0.0, 1.0}, [](Value, Value i) { return i < 4.0; },
      [&](Value a, Value i) {
        return std::array{a + grad(sum(v * v) * i, {w})[0], i + 1.0};
      });
  g.output("n", n);
  EXPECT_EQ(run(total), 2.0 * 3.0 * (1 + 2 + 3));
}

TEST_P(ControlFlowGradient, ABranchMayHaveGradientsOfItsOwn) {
  Value y = if_(
      sum(x) > 0.0, [&] { return grad(sum(v * v * x), {w})[0]; }, [&] { return x * 7.0; });
  EXPECT_EQ(run(y), 6.0);
}

}  // namespace
}  // namespace graphsink
