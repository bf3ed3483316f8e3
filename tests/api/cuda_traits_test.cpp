// Ops that declare what a launch cannot hold. The planner ends a launch there, and no capture fails.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "cuda_ops.h"
#include "graphsink/cuda.h"
#include "program_fixture.h"

namespace graphsink::cuda_traits_test {
namespace {

using testing::outside_op;
using testing::waits_op;

class CudaTraits : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }

  static bool has_reason(Program& program, std::string_view text) {
    return program.explain().find(text) != std::string::npos;
  }
};

TEST_F(CudaTraits, WhatCannotBeCapturedRunsBetweenTwoLaunches) {
  Graph g;
  Value x = g.input("x", f32, {2});
  g.output("y", tanh(emit(waits_op, {x * 0.5})[0]) + 1.0);
  Program program = compile(g, {.target = cuda(0)});
  program.write(x, std::vector<float>{2, 4});
  program.run(interactive_serial);
  double expected = program.output("y").at(1);
  program.run(sink);
  std::uint64_t launches = program.counters().graph_launches;
  program.run(sink);
  EXPECT_EQ(program.output("y").at(1), expected);
  EXPECT_EQ(program.counters().graph_launches - launches, 2u) << program.explain();
  EXPECT_EQ(program.counters().fallbacks, 0u);
  EXPECT_TRUE(has_reason(program, "its OpDef declares it as not capturable")) << program.explain();
}

TEST_F(CudaTraits, TheHostDrivesALoopAroundIt) {
  for (const OpDef* op : {&waits_op, &outside_op}) {
    Graph g;
    Value x = g.input("x", f32, {2});
    auto end = while_(
        {x}, [](const Value& v) { return sum(v) < 100.0; }, [&](const Value& v) { return emit(*op, {v})[0] * 2.0; });
    g.output("y", end[0]);
    Program program = compile(g, {.target = cuda(0)});
    program.write(x, std::vector<float>{1, 2});
    program.run(sink);
    program.run(sink);
    EXPECT_EQ(program.output("y").at(1), 128) << op->name;
    EXPECT_EQ(program.counters().fallbacks, 0u) << op->name;
    EXPECT_TRUE(has_reason(program, "a loop is driven by the host")) << program.explain();
  }
}

TEST_F(CudaTraits, SeveralStepsTakeSeveralLaunchesWhereALoopCannotHoldIt) {
  Graph g;
  Value x = g.input("x", f32, {2});
  g.output("y", emit(outside_op, {x})[0] * 2.0);
  Program program = compile(g, {.target = cuda(0)});
  program.write(x, std::vector<float>{1, 2});
  program.run(sink);
  program.run(sink, {.steps = 3});
  EXPECT_EQ(program.output("y").at(1), 4);
  EXPECT_EQ(program.counters().graph_launches, 3u) << program.explain();
  EXPECT_TRUE(has_reason(program, "outside is declared as not allowed in the body of a conditional node"))
      << program.explain();
}

}  // namespace
}  // namespace graphsink::cuda_traits_test
