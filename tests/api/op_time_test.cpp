// Program::time_ops(): what ran, how often, and that its steps are like others.
#include <algorithm>
#include <string>

#include "api/plan_of.h"
#include "graphsink/select.h"
#include "messages.h"
#include "program_fixture.h"

namespace graphsink::op_time_test {
namespace {

using testing::contains;
using testing::cpu_plus_one;
using testing::cpu_refuse_negative;
using testing::message_of;
using testing::OnDevice;

std::int64_t runs_of(const std::vector<OpTime>& ops, std::string_view name) {
  std::int64_t runs = 0;
  for (const OpTime& op : ops)
    if (op.op == name) runs += op.runs;
  return runs;
}

const OpTime* find(const std::vector<OpTime>& ops, std::string_view name) {
  auto found = std::find_if(ops.begin(), ops.end(), [&](const OpTime& op) { return op.op == name; });
  return found == ops.end() ? nullptr : &*found;
}

TEST_P(OnDevice, OpsAreMeasuredAndDescribed) {
  Graph g;
  Value x = g.input("x", f32, {32, 64}), y = g.input("y", f32, {64, 16});
  g.output("z", matmul(x, y));
  Program p = compile(g);
  p.write(x, Tensor(f32, {32, 64}));
  p.write(y, Tensor(f32, {64, 16}));
  p.run();
  const std::vector<OpTime> ops = p.time_ops(5);
  const OpTime* product = find(ops, "matmul");
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(product->runs, 5);
  EXPECT_GT(product->us, 0);
  EXPECT_EQ(product->flops, 2u * 32 * 64 * 16);
  EXPECT_EQ(product->bytes, sizeof(float) * (32 * 64 + 64 * 16 + 32 * 16));
  ASSERT_EQ(product->inputs.size(), 2u);
  EXPECT_EQ(product->inputs[1], (TensorType{f32, {64, 16}}));
  ASSERT_EQ(product->outputs.size(), 1u);
  EXPECT_EQ(product->outputs[0], (TensorType{f32, {32, 16}}));
  EXPECT_TRUE(contains(to_string(product->where), "op_time_test.cpp")) << to_string(product->where);
  EXPECT_EQ(runs_of(ops, "begin_step"), 5);
  EXPECT_EQ(runs_of(ops, "end_step"), 5);
}

// In the order of one stream, whatever the number of streams that the plan has.
TEST_P(OnDevice, AStepOfSeveralStreamsIsMeasuredInALaunch) {
  Graph g;
  const Value x = g.input("x", f32, {64, 64});
  Value left = x, right = tanh(x);
  for (int i = 0; i < 4; ++i) {
    left = matmul(left, x);
    right = matmul(x, right);
  }
  g.output("y", left + right);
  std::string warnings;
  Program p =
      compile(g, {.tuning = {.fuse = false}, .log = [&](LogLevel, std::string_view text) { warnings += text; }});
  p.write(x, Tensor::full(f32, {64, 64}, 0.01));
  p.run();
  EXPECT_TRUE(!is_cuda() || plan_of(p).streams > 1);
  const std::vector<OpTime> ops = p.time_ops(2);
  EXPECT_EQ(runs_of(ops, "matmul"), 2 * 8);
  EXPECT_EQ(warnings, "");
}

// The loop runs 4 times in each step, and one of two bodies is never run.
TEST_P(OnDevice, RunsOfBodiesAreCounted) {
  Graph g;
  Value x = g.input("x", f32, {8});
  Value limit = g.input("limit", f32, {});
  Value zero = g.constant(Tensor::scalar(0.0f));
  auto [u, n] = while_(
      {x, zero}, [&](Value, Value i) { return i < limit; },
      [](Value s, Value i) {
        return std::array{cumsum(s, 0), i + 1};
      });
  g.output("u",
           if_(
               sum(u) > 0, [&, last = u] { return softmax(last, 0); }, [&, last = u] { return sort(last).values; }));
  g.output("n", n);
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 1, 1, 1, 1, 1, 1, 1});
  p.write(limit, std::vector<float>{4});
  p.run();
  const std::vector<OpTime> ops = p.time_ops(3);
  EXPECT_EQ(runs_of(ops, "cumsum"), 12);
  EXPECT_EQ(runs_of(ops, "softmax"), 3);
  ASSERT_NE(find(ops, "sort"), nullptr);
  EXPECT_EQ(runs_of(ops, "sort"), 0);
  EXPECT_EQ(p.output("n").at(0), 4);
}

TEST_P(OnDevice, TimedStepsAreLikeOthers) {
  Graph g;
  Value x = g.feed("x", f32, {4});
  Variable w("w", Tensor(f32, {4}));
  assign(w, g.value(w) + x);
  g.record("sum", sum(g.value(w)));
  Program p = compile(g);
  auto write = [&](float value, std::int64_t steps) {
    p.write(x, std::vector<float>(static_cast<std::size_t>(4 * steps), value));
  };
  write(1, 1);
  p.run();
  p.write(x, std::vector<float>{1, 1, 1, 1, 10, 10, 10, 10});
  (void)p.time_ops(2);
  EXPECT_EQ(p.steps(), 3);
  EXPECT_EQ(w.read().at(0), 12);
  write(100, 2);
  p.run(sink, {.steps = 2});
  EXPECT_EQ(w.read().at(3), 212);
  EXPECT_EQ(p.records("sum"), (std::vector<float>{4, 8, 48, 448, 848}));
}

// Issued op by op on a GPU, because the step is not one launch.
TEST_P(OnDevice, OpsOnTheHostAreMeasuredToo) {
  Graph g;
  Value x = g.input("x", f32, {256});
  g.output("y", neg(emit(cpu_plus_one, {exp(x)})[0]));
  Program p = compile(g);
  p.write(x, Tensor(f32, {256}));
  p.run();
  const std::vector<OpTime> ops = p.time_ops(2);
  EXPECT_EQ(runs_of(ops, "exp"), 2);
  EXPECT_EQ(runs_of(ops, "cpu_plus_one"), 2);
  EXPECT_EQ(runs_of(ops, "neg"), 2);
  EXPECT_EQ(runs_of(ops, "copy"), is_cuda() ? 4 : 0);
  if (is_cuda()) {
    EXPECT_EQ(find(ops, "copy")->bytes, 2 * 256 * sizeof(float));
  }
  EXPECT_EQ(p.output("y").at(0), -2);
}

TEST_P(OnDevice, AFailedTimedStepIsReportedAndTheNextRunIsNotTimed) {
  Graph g;
  Value x = g.input("x", f32, {1});
  Variable w("w", Tensor({10.0f}));
  assign(w, g.value(w) + emit(cpu_refuse_negative, {x})[0]);
  Program p = compile(g);
  p.write(x, std::vector<float>{1});
  p.run();
  p.write(x, std::vector<float>{-1});
  EXPECT_TRUE(contains(message_of([&] { (void)p.time_ops(2); }), "negative input"));
  EXPECT_EQ(w.read().at(0), 11);
  p.write(x, std::vector<float>{2});
  p.run();
  p.sync();
  EXPECT_EQ(w.read().at(0), 13);
  EXPECT_EQ(runs_of(p.time_ops(1), "refuse_negative"), 1);
}

TEST_P(OnDevice, WhatCannotBeTimedIsRefused) {
  Graph g;
  Value x = g.input("x", f32, {4});
  g.output("y", exp(x));
  Program p = compile(g);
  p.write(x, Tensor(f32, {4}));
  std::string message = message_of([&] { (void)p.time_ops(1); });
  EXPECT_TRUE(contains(message, "has not run") && contains(message, "call run() once")) << message;
  p.run();
  EXPECT_TRUE(contains(message_of([&] { (void)p.time_ops(0); }), "time_ops: 0 steps"));

  Graph sized;
  Value data = sized.input("x", f32, {4});
  sized.output("places", flat_nonzero(data).values);
  Program q = compile(sized);
  q.write(data, Tensor(f32, {4}));
  q.run();
  message = message_of([&] { (void)q.time_ops(1); });
  EXPECT_TRUE(contains(message, "size that depends on data") && contains(message, "upper bounds")) << message;
}

}  // namespace
}  // namespace graphsink::op_time_test
