// Loops whose gradient runs them again instead of keeping every state: the same results in less memory.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "messages.h"
#include "program_fixture.h"

namespace graphsink::recompute_test {
namespace {

using testing::contains;
using testing::message_of;

class Recompute : public testing::OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, Recompute, ::testing::ValuesIn(testing::devices()), testing::device_name);

std::vector<double> numbers_of(const Tensor& tensor) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < tensor.type().shape.size(); ++i) numbers.push_back(tensor.at(i));
  return numbers;
}

struct Outcome {
  std::vector<std::vector<double>> outputs;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// A loop that ends after `trips` iterations, or at its limit, and multiplies by a matrix from outside.
Outcome run_while(DeviceId device, Mode mode, std::int64_t limit, int trips, bool recompute) {
  constexpr std::int64_t kWidth = 3;
  Graph g;
  Variable w("w", Tensor::uniform({kWidth, kWidth}, 1, -0.5f, 0.5f).to(f64));
  Value x = g.input("x", f64, {2, kWidth}), most = g.input("most", f64, {});
  auto [y, n] = while_(
      {Arg(x), Arg(most * 0.0)}, [&](Value, Value i) { return i < most; },
      [&](Value s, Value i) {
        return std::array<Value, 2>{tanh(matmul(s, w) + sin(s) * x), i + 1.0};
      },
      {.max_iterations = limit, .recompute = recompute});
  const std::vector<Value> gradients = grad(sum(y * y), {x, g.value(w)});
  g.output("y", y);
  g.output("n", n);
  g.output("of x", gradients[0]);
  g.output("of w", gradients[1]);
  Program p = compile(g, {.target = device});
  p.write(x, Tensor::uniform({2, kWidth}, 2, -1.0f, 1.0f).to(f64));
  p.write(most, std::vector<double>{static_cast<double>(trips)});
  for (int i = 0; i < 2; ++i) p.run(mode);
  Outcome outcome;
  for (const char* name : {"y", "n", "of x", "of w"}) outcome.outputs.push_back(numbers_of(p.output(name)));
  return outcome;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12 * (1 + std::abs(b[i]))) << i;
}

// What is added up over the iterations is added up in another order.
TEST_P(Recompute, ALoopHasTheSameResults) {
  for (std::int64_t limit : {1, 2, 4, 7, 16, 30}) {
    for (int trips : {0, 1, 3, 6, 16, 30}) {
      if (trips > limit) continue;
      SCOPED_TRACE(std::to_string(limit) + ", " + std::to_string(trips));
      const Outcome kept = run_while(GetParam(), interactive_serial, limit, trips, false);
      const Outcome again = run_while(GetParam(), interactive_serial, limit, trips, true);
      EXPECT_EQ(kept.outputs[1][0], trips);
      for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(again.outputs[i], kept.outputs[i]) << i;
      for (std::size_t i = 2; i < 4; ++i) expect_near(again.outputs[i], kept.outputs[i]);
      for (Mode mode : testing::kModes) EXPECT_TRUE(again == run_while(GetParam(), mode, limit, trips, true));
    }
  }
}

// A scan with a state, slices, outputs and a matrix from outside.
Outcome run_scan(DeviceId device, Mode mode, std::int64_t iterations, bool recompute) {
  Graph g;
  Variable w("w", Tensor::uniform({3, 3}, 1, -0.5f, 0.5f).to(f64));
  Value x = g.input("x", f64, {iterations, 2, 3}), first = g.input("first", f64, {2, 3});
  Scan s = scan({Arg(first)}, {Arg(x)},
                [&](const Values& state, const Values& slices) {
                  Value next = tanh(matmul(state[0], w) + slices[0]);
                  return Scan{{next}, {next * slices[0], sum(next, {1})}};
                },
                {.recompute = recompute});
  Value loss = sum(s.state[0] * s.state[0]) + sum(s.outputs[0] * 2.0) + sum(exp(s.outputs[1]));
  const std::vector<Value> gradients = grad(loss, {x, first, g.value(w)});
  g.output("state", s.state[0]);
  g.output("stacked", s.outputs[0]);
  g.output("sums", s.outputs[1]);
  g.output("of x", gradients[0]);
  g.output("of first", gradients[1]);
  g.output("of w", gradients[2]);
  Program p = compile(g, {.target = device});
  p.write(x, Tensor::uniform({iterations, 2, 3}, 2, -1.0f, 1.0f).to(f64));
  p.write(first, Tensor::uniform({2, 3}, 3, -1.0f, 1.0f).to(f64));
  for (int i = 0; i < 2; ++i) p.run(mode);
  Outcome outcome;
  for (const char* name : {"state", "stacked", "sums", "of x", "of first", "of w"})
    outcome.outputs.push_back(numbers_of(p.output(name)));
  return outcome;
}

TEST_P(Recompute, AScanHasTheSameResults) {
  for (std::int64_t iterations : {1, 2, 4, 7, 16, 30}) {
    SCOPED_TRACE(iterations);
    const Outcome kept = run_scan(GetParam(), interactive_serial, iterations, false);
    const Outcome again = run_scan(GetParam(), interactive_serial, iterations, true);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(again.outputs[i], kept.outputs[i]) << i;
    for (std::size_t i = 3; i < kept.outputs.size(); ++i) expect_near(again.outputs[i], kept.outputs[i]);
    for (Mode mode : testing::kModes) EXPECT_TRUE(again == run_scan(GetParam(), mode, iterations, true));
  }
}

TEST_P(Recompute, TakesLittleMemory) {
  auto arena_bytes = [&](bool recompute) {
    Graph g;
    Value x = g.input("x", f64, {512});  // 4 KiB
    auto [y, n] = while_(
        {Arg(x), Arg(sum(x) * 0.0)}, [](Value, Value i) { return i < 390.0; },
        [](Value s, Value i) {
          return std::array<Value, 2>{sin(s) + s * 0.5, i + 1.0};
        },
        {.max_iterations = 400, .recompute = recompute});
    g.output("n", n);
    g.output("of x", grad(sum(y * y), {x})[0]);
    Program p = compile(g);
    p.write(x, Tensor::uniform({512}, 1, 0.0f, 2.0f).to(f64));
    p.run();
    p.sync();
    return p.arena_bytes();
  };
  const std::size_t kept = arena_bytes(false), again = arena_bytes(true);
  EXPECT_GT(kept, 400u * 4096u);
  EXPECT_LT(again, 60u * 4096u);
}

TEST_P(Recompute, TheLimitIsThatOfTheUser) {
  for (Mode mode : testing::kModes) {
    Graph g;
    Variable steps("steps", Tensor::scalar(0.0f));
    Value x = g.input("x", f32, {});
    auto [y] = while_(
        {x}, [](Value s) { return s < 100.0; }, [](Value s) { return s + 1.0; },
        {.max_iterations = 10, .recompute = true});
    assign(steps, g.value(steps) + y);
    Program p = compile(g);
    p.write(x, std::vector<float>{95});
    p.run(mode);
    EXPECT_EQ(steps.read().at(0), 100.0);
    p.write(x, std::vector<float>{89});
    p.run(mode);
    const std::string message = message_of([&] { p.sync(); });
    for (const char* word : {"while_", "still held after 10 iterations"})
      EXPECT_TRUE(contains(message, word)) << message;
    p.write(x, std::vector<float>{90});  // exactly ten
    p.run(mode);
    EXPECT_EQ(steps.read().at(0), 200.0);
  }
}

TEST_P(Recompute, LoopsInLoops) {
  auto build = [&](bool recompute) {
    Graph g;
    Value x = g.input("x", f64, {3});
    auto [y] = while_(
        {x}, [](Value s) { return sum(s) < 40.0; },
        [&](Value s) {
          auto [inner] = while_(
              {s * 0.5}, [](Value t) { return sum(t * t) < 30.0; }, [&](Value t) { return t * 1.25 + x * 0.125; },
              {.max_iterations = 20, .recompute = recompute});
          return inner + s;
        },
        {.max_iterations = 9, .recompute = recompute});
    g.output("y", y);
    g.output("of x", grad(sum(y * y), {x})[0]);
    Program p = compile(g);
    p.write(x, std::vector<double>{0.25, 0.5, 1});
    for (int i = 0; i < 2; ++i) p.run(sink);
    return std::array{numbers_of(p.output("y")), numbers_of(p.output("of x"))};
  };
  const auto kept = build(false), again = build(true);
  EXPECT_EQ(again[0], kept[0]);
  expect_near(again[1], kept[1]);
}

TEST_P(Recompute, RandomOpsDrawTheSameNumbersAgain) {
  // y is x times all numbers, so that its gradient is y / x.
  for (Mode mode : testing::kModes) {
    Graph g;
    Value x = g.input("x", f64, {2});
    auto [y, n] = while_(
        {Arg(x), Arg(sum(x) * 0.0)}, [](Value, Value i) { return i < 11.0; },
        [&](Value s, Value i) {
          return std::array<Value, 2>{s * (random_uniform(s) + 0.5), i + 1.0};
        },
        {.max_iterations = 12, .recompute = true});
    g.output("n", n);
    g.output("y", y);
    g.output("of x", grad(sum(y), {x})[0]);
    Program p = compile(g);
    p.write(x, std::vector<double>{0.5, 2});
    for (int i = 0; i < 2; ++i) p.run(mode);
    const std::vector<double> results = numbers_of(p.output("y")), slopes = numbers_of(p.output("of x"));
    EXPECT_NEAR(slopes[0], results[0] / 0.5, 1e-12);
    EXPECT_NEAR(slopes[1], results[1] / 2, 1e-12);
  }
}

TEST(RecomputeRefusal, WithoutALimit) {
  Graph g;
  Value x = g.input("x", f32, {});
  const std::string message = message_of([&] {
    while_(
        {x}, [](Value s) { return s < 100.0; }, [](Value s) { return s + 1.0; }, {.recompute = true});
  });
  for (const char* word : {"while_", "recompute_test.cpp", "recompute without a limit", ".max_iterations"})
    EXPECT_TRUE(contains(message, word)) << message;
}

TEST(RecomputeRefusal, AnotherNumberOfValues) {
  Graph g;
  Value x = g.input("x", f32, {});
  const std::string message = message_of([&] {
    while_(
        std::vector<Value>{x}, [](const Values& s) { return s[0] < 100.0; },
        [](const Values& s) {
          return Values{s[0], s[0]};
        },
        {.max_iterations = 10, .recompute = true});
  });
  EXPECT_TRUE(contains(message, "the body returned 2 Values, the state has 1")) << message;
}

}  // namespace
}  // namespace graphsink::recompute_test
