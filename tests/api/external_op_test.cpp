// Functions of the caller's as nodes of a graph, on every device.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "messages.h"
#include "program_fixture.h"

namespace graphsink::external_op_test {
namespace {

using testing::contains;
using testing::message_of;
using testing::OnDevice;

class External : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, External, ::testing::ValuesIn(testing::devices()), testing::device_name);

// out = factor * in, with a factor that the function captures.
ExternalOp scaled(float factor, std::vector<TensorType> outputs) {
  return {.name = "scaled", .outputs = std::move(outputs), .cpu = [factor](const CpuArgs& a) {
            const auto* x = a.in<float>(0);
            std::transform(x, x + a.in_type(0).shape.size(), a.out<float>(0), [&](float v) { return factor * v; });
          }};
}

TEST_P(External, ComputesValuesFromValuesAndVariables) {
  Graph g;
  Value x = g.input("x", f32, {3});
  Variable w("w", Tensor({1.0f, 10.0f, 100.0f}));
  const TensorType type{f32, {3}};
  auto sum_and_product = external_op({.name = "sum_and_product",
                                      .outputs = {type, type},
                                      .cpu =
                                          [](const CpuArgs& a) {
                                            for (int i = 0; i < 3; ++i) {
                                              a.out<float>(0)[i] = a.in<float>(0)[i] + a.in<float>(1)[i];
                                              a.out<float>(1)[i] = a.in<float>(0)[i] * a.in<float>(1)[i];
                                            }
                                          }},
                                     {x * 2.0, w});
  g.output("sum", sum_and_product[0] + 1.0);
  assign(w, sum_and_product[1]);
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 2, 3});
  for (Mode mode : testing::kModes) p.run(mode);
  EXPECT_EQ(p.output("sum").at(1), 4 + 10 * 16 + 1);
  EXPECT_EQ(w.read().at(2), 100 * 6 * 6 * 6);
  EXPECT_TRUE(contains(p.explain(), "sum_and_product"));
}

// Nodes are told apart by what their functions capture.
TEST_P(External, NoTwoNodesAreMerged) {
  Graph g;
  Value x = g.input("x", f32, {2});
  g.output("y", external_op(scaled(2, {{f32, {2}}}), {x})[0] + external_op(scaled(30, {{f32, {2}}}), {x})[0]);
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 2});
  p.run();
  EXPECT_EQ(p.output("y").at(1), 64.0);
}

TEST_P(External, OutlivesTheScopeThatBuiltIt) {
  Graph g;
  Value x = g.input("x", f32, {2});
  auto calls = std::make_shared<int>(0);
  std::weak_ptr<int> watched = calls;
  {
    ExternalOp op = scaled(3, {{f32, {2}}});
    op.cpu = [calls, inner = op.cpu](const CpuArgs& a) {
      ++*calls;
      inner(a);
    };
    g.output("y", external_op(std::move(op), {x})[0]);
  }
  calls.reset();
  std::optional<Program> p = compile(g);
  g = Graph();
  p->write(x, std::vector<float>{1, 2});
  p->run(interactive_serial);
  EXPECT_EQ(p->output("y").at(1), 6.0);
  EXPECT_EQ(*watched.lock(), 1);
  p.reset();
  x = Value();
  EXPECT_TRUE(watched.expired()) << "nothing keeps the function alive";
}

TEST_P(External, FollowsOpenDimensions) {
  Graph g;
  Value x = g.input("x", f32, {open(2)});
  ExternalOp op = scaled(2, {});
  op.infer = testing::infer_like_first;
  g.output("y", external_op(std::move(op), {x})[0]);
  Program p = compile(g);
  for (std::size_t size : {2, 5, 3}) {
    p.write(x, std::vector<float>(size, 4.0f));
    p.run();
    EXPECT_EQ(p.output("y").type(), (TensorType{f32, {static_cast<std::int64_t>(size)}}));
    EXPECT_EQ(p.output("y").at(size - 1), 8.0);
  }
}

TEST_P(External, HasAGradientWhereOneIsGiven) {
  Graph g;
  Value x = g.input("x", f32, {2});
  ExternalOp op = scaled(3, {{f32, {2}}});
  op.grad = [](const GradArgs& a) { return std::vector<Value>{a.grads[0] * 3.0}; };
  Value y = external_op(std::move(op), {x})[0];
  g.output("dx", grad(sum(y * y), {x})[0]);
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 2});
  p.run();
  EXPECT_EQ(p.output("dx").at(1), 2 * 6 * 3.0);
  Value none = external_op(scaled(1, {{f32, {2}}}), {x})[0];
  EXPECT_TRUE(contains(message_of([&] { grad(sum(none), {x}); }), "scaled"));
}

TEST_P(External, HasAWorkspace) {
  Graph g;
  Value x = g.input("x", f32, {2});
  g.output("y", external_op({.name = "two passes",
                             .outputs = {{f32, {2}}},
                             .cpu =
                                 [](const CpuArgs& a) {
                                   ASSERT_GE(a.workspace_bytes(), 8u);
                                   auto* scratch = static_cast<float*>(a.workspace());
                                   std::copy_n(a.in<float>(0), 2, scratch);
                                   std::reverse_copy(scratch, scratch + 2, a.out<float>(0));
                                 },
                             .workspace = 8},
                            {x})[0]);
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 2});
  p.run();
  EXPECT_EQ(p.output("y").at(0), 2.0);
}

// An effect keeps a node alive that nothing uses.
TEST_P(External, AnEffectHappensOnceInEachStep) {
  Graph g;
  Value x = g.input("x", f32, {2});
  int effects = 0, unused = 0;
  external_op({.name = "counts", .cpu = [&](const CpuArgs&) { ++effects; }, .traits = {.host_effect = true}}, {x});
  external_op({.name = "unused", .outputs = {{f32, {}}}, .cpu = [&](const CpuArgs&) { ++unused; }}, {x});
  g.output("y", x + 1.0);
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 2});
  for (int i = 0; i < 3; ++i) p.run(sink);
  p.sync();
  EXPECT_EQ(effects, 3);
  EXPECT_EQ(unused, 0);
}

TEST_P(External, WhatItThrowsFailsTheStep) {
  Graph g;
  Value x = g.input("x", f32, {2});
  g.output("y", external_op({.name = "tokenize",
                             .outputs = {{f32, {2}}},
                             .cpu = [](const CpuArgs&) { throw std::runtime_error("no such token"); }},
                            {x})[0]);
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 2});
  p.run();
  const std::string message = message_of([&] { p.sync(); });
  for (const char* word : {"tokenize", "its body threw: no such token", "in step 0", "external_op_test.cpp:"})
    EXPECT_TRUE(contains(message, word)) << message;
}

TEST(ExternalOpMisuse, IsNamedWithItsRemedy) {
  Graph g;
  Value x = g.input("x", f32, {2});
  auto nothing = [](const CpuArgs&) {};
  struct Row {
    ExternalOp op;
    std::vector<const char*> words;
  };
  const Row rows[] = {
      {{.outputs = {{f32, {2}}}, .cpu = nothing}, {"external_op", "it has no name", "give it one"}},
      {{.name = "empty", .outputs = {{f32, {2}}}},
       {"empty", "neither a function for CUDA nor one for the CPU", "set .cuda, .cpu or both"}},
      {{.name = "both", .outputs = {{f32, {2}}}, .infer = testing::infer_like_first, .cpu = nothing},
       {"both", "it has both .outputs and .infer", "set one of them"}},
      {{.name = "idle", .cpu = nothing}, {"idle", "no outputs", "nothing would run it", ".host_effect = true"}},
  };
  for (const Row& row : rows) {
    const std::string message = message_of([&] { external_op(row.op, {x}); });
    for (const char* word : row.words) EXPECT_TRUE(contains(message, word)) << message;
    EXPECT_TRUE(contains(message, "external_op_test.cpp:")) << message;
  }
}

}  // namespace
}  // namespace graphsink::external_op_test
