// Graph::updated(): the value of a Variable after its update, in the same step.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "api/plan_of.h"
#include "messages.h"
#include "test_ops.h"

namespace graphsink::updated_test {
namespace {

using testing::contains;
using testing::message_of;

class Updated : public ::testing::TestWithParam<DeviceId> {};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, Updated, ::testing::ValuesIn(testing::devices()), device_name);

Tensor numbers(DType dtype, std::int64_t size) {
  Tensor tensor(f64, {size});
  for (std::int64_t i = 0; i < size; ++i)
    tensor.as<double>()[static_cast<std::size_t>(i)] = static_cast<double>(i % 23 - 11) / 16;
  return tensor.to(dtype);
}

struct Problem {
  Graph g;
  // More elements than a tile, or a block, has; and parameters that share an op.
  std::vector<Variable> parameters{Variable("a", numbers(f32, 5000)), Variable("b", numbers(f32, 3)),
                                   Variable("c", numbers(f64, 7)),    Variable("d", numbers(f16, 1031)),
                                   Variable("e", numbers(bf16, 5)),   Variable("none", numbers(f32, 0))};
  Value x = g.feed("x", f32, {});
  Value loss;

  Problem() {
    for (const Variable& parameter : parameters) {
      const Value difference = cast(g.value(parameter), f32) - x;
      const Value term = sum(difference * difference);
      loss = loss.valid() ? loss + term : term;
    }
  }
};

struct Row {
  const char* name;
  std::function<Optimizer(const Problem&)> build;
};

const GradientOptions kAccumulated{.clip_norm = 3.0, .accumulate = 3};
const GradientOptions kScaled{.loss_scale = LossScale{.initial = 0x1p17, .interval = 2}};
const Row kRows[] = {
    {"sgd", [](const Problem& p) { return sgd(p.loss, p.parameters, {.lr = 0.01, .weight_decay = 0.1}); }},
    {"momentum",
     [](const Problem& p) { return sgd(p.loss, p.parameters, {.lr = 0.01, .momentum = 0.9, .nesterov = true}); }},
    {"adamw", [](const Problem& p) { return adamw(p.loss, p.parameters); }},
    {"groups",
     [](const Problem& p) {
       const Variable decay("decay", Tensor::scalar(0.25f));
       return adamw(p.loss, std::vector<ParameterGroup>{{{p.parameters[4], p.parameters[0]}, 0.5},
                                                        {{p.parameters[2], p.parameters[1]}, {}, decay},
                                                        {{p.parameters[3], p.parameters[5]}}});
     }},
    {"sgd accumulated", [](const Problem& p) { return sgd(p.loss, p.parameters, {.gradients = kAccumulated}); }},
    {"adamw accumulated", [](const Problem& p) { return adamw(p.loss, p.parameters, {.gradients = kAccumulated}); }},
    {"momentum scaled",
     [](const Problem& p) { return sgd(p.loss, p.parameters, {.momentum = 0.5, .gradients = kScaled}); }},
    {"adamw scaled", [](const Problem& p) { return adamw(p.loss, p.parameters, {.gradients = kScaled}); }},
};

TEST_P(Updated, IsWhatTheCommitWrites) {
  for (const Row& row : kRows) {
    for (Mode mode : {interactive_serial, interactive_parallel, sink}) {
      SCOPED_TRACE(std::string(row.name) + " " + std::string(to_string(mode)));
      Problem problem;
      const Optimizer optimizer = row.build(problem);
      std::vector<Variable> all = problem.parameters;
      all.insert(all.end(), optimizer.state.begin(), optimizer.state.end());
      for (std::size_t i = 0; i < all.size(); ++i)
        problem.g.output("after" + std::to_string(i), problem.g.updated(all[i]));
      Program p = compile(problem.g, {.target = GetParam()});
      int changes = 0;
      for (int step = 0; step < 7; ++step) {
        const Tensor before = all[0].read();
        p.write(problem.x, std::vector<float>{0.25f * static_cast<float>(step)});
        p.run(mode);
        for (std::size_t i = 0; i < all.size(); ++i) {
          const Tensor after = p.output("after" + std::to_string(i)), committed = all[i].read();
          ASSERT_EQ(after.type(), committed.type());
          ASSERT_EQ(std::memcmp(after.data(), committed.data(), after.bytes()), 0)
              << all[i].name() << ", step " << step;
        }
        changes += std::memcmp(before.data(), all[0].read().data(), before.bytes()) != 0 ? 1 : 0;
      }
      EXPECT_GT(changes, 0);
      const bool skips = optimizer.gradient_norm.valid();
      EXPECT_EQ(changes < 7, skips) << "an accumulated or skipped update is part of the test";
    }
  }
}

TEST_P(Updated, MovingAveragesAreNotOneStepLate) {
  for (Mode mode : {interactive, sink}) {
    Graph g;
    Variable w("w", Tensor({1.0, -2.0})), average("average", Tensor({0.0, 0.0}));
    Value x = g.feed("x", f64, {});
    sgd(sum(g.value(w) * g.value(w)) * x, {w}, {.lr = g.constant(Tensor::scalar(0.25))});
    assign(average, g.value(average) * 0.5 + g.updated(w) * 0.5);
    g.record("norm", sum(g.updated(w) * g.updated(w)));
    Program p = compile(g, {.target = GetParam()});
    p.write(x, std::vector<double>{1, 0.5, 0.25, 1});
    p.run(mode, {.steps = 4});
    double expected[] = {1, -2}, mean[] = {0, 0};
    std::vector<double> norms;
    for (double factor : {1.0, 0.5, 0.25, 1.0}) {
      for (int i = 0; i < 2; ++i) {
        expected[i] -= 0.25 * (2 * expected[i] * factor);
        mean[i] = mean[i] * 0.5 + expected[i] * 0.5;
      }
      norms.push_back(expected[0] * expected[0] + expected[1] * expected[1]);
    }
    EXPECT_EQ(p.records<double>("norm"), norms);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(average.read().at(i), mean[i]);
  }
}

TEST_P(Updated, OfAssignedVariablesIsTheAssignedValue) {
  Graph g;
  Variable v("v", Tensor({1.0f})), w("w", Tensor({2.0f}));
  assign(v, g.value(w) * 3.0);
  g.output("v", g.updated(v));
  Program p = compile(g, {.target = GetParam()});
  p.run(sink);
  EXPECT_EQ(p.output("v").at(0), 6.0);
}

TEST_P(Updated, InABodyIsTheSameValue) {
  Graph g;
  Variable w("w", Tensor({4.0f}));
  Value x = g.input("x", f32, {});
  sgd(sum(g.value(w)) * 2.0, {w}, {.lr = 0.5});
  const Value count = while_(
      {x}, [](Value n) { return n < 3.0; }, [&](Value n) { return n + sum(g.updated(w)); })[0];
  const Value chosen = if_(
      x < 1.0, [&] { return Values{g.updated(w) * 10.0}; }, [&] { return Values{g.updated(w)}; })[0];
  g.output("count", count);
  g.output("chosen", chosen);
  Program p = compile(g, {.target = GetParam()});
  p.write(x, std::vector<float>{0});
  p.run(sink);
  EXPECT_EQ(p.output("count").at(0), 3.0);
  EXPECT_EQ(p.output("chosen").at(0), 30.0);
  std::size_t nodes = 0;
  for (const PlanNode& node : plan_of(p).nodes) nodes += node.op->name == "updated_sgd" ? 1 : 0;
  EXPECT_EQ(nodes, 1u) << "it is computed once";
}

TEST_P(Updated, FailedStepsCommitNothing) {
  Graph g;
  Variable w("w", Tensor({1.0f})), copy("copy", Tensor({0.0f}));
  Value x = g.input("x", f32, {});
  sgd(check_finite(sum(g.value(w)) * x), {w}, {.lr = 0.5});
  assign(copy, g.updated(w));
  Program p = compile(g, {.target = GetParam()});
  p.write(x, std::vector<float>{1});
  p.run(sink);
  p.sync();
  EXPECT_EQ(copy.read().at(0), 0.5);
  p.write(x, std::vector<float>{std::numeric_limits<float>::infinity()});
  p.run(sink);
  EXPECT_THROW(p.sync(), Error);
  EXPECT_EQ(copy.read().at(0), 0.5);
  EXPECT_EQ(w.read().at(0), 0.5);
}

// Adds operand 1 to the Variable.
Access write_first(int operand, int) { return operand == 0 ? Access::write : Access::read; }
void infer_nothing(InferArgs& a) { a.expect_inputs(2); }
void add_in_place(const CpuArgs&) {}
const OpDef add_op{.name = "add_in_place", .infer = infer_nothing, .access = write_first, .bodies = {add_in_place}};

TEST(Updated, SaysWhatToDo) {
  Graph g;
  Variable v("v", Tensor({1.0f})), w("w", Tensor({1.0f}));
  std::string said = message_of([&] { g.updated(w); });
  EXPECT_TRUE(contains(said, "nothing in this graph has updated \"w\"")) << said;
  EXPECT_TRUE(contains(said, "behind the optimizer")) << said;
  EXPECT_TRUE(contains(said, "updated_test.cpp")) << said;
  emit(add_op, {v, g.input("x", f32, {1})});
  said = message_of([&] { g.updated(v); });
  EXPECT_TRUE(contains(said, "\"v\" is written by an op at updated_test.cpp")) << said;
  EXPECT_TRUE(contains(said, "assign() that")) << said;
  const Optimizer optimizer = sgd(sum(g.value(w)), {w});
  said = message_of([&] { g.value(w); });
  EXPECT_TRUE(contains(said, "updated(variable)")) << said;
  EXPECT_TRUE(contains(message_of([&] { g.updated(optimizer.lr); }), "nothing in this graph")) << said;
  EXPECT_TRUE(contains(message_of([&] { g.updated(Variable()); }), "refers to nothing"));
  said = message_of([&] { grad(sum(g.updated(w)), {g.input("y", f32, {1}), optimizer.lr}); });
  EXPECT_TRUE(contains(said, "what an optimizer computes is not differentiated")) << said;
}

}  // namespace
}  // namespace graphsink::updated_test
