// A capture that fails loses no step: the software device makes calls fail while a Program captures.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "api/plan_of.h"
#include "emulator.h"
#include "graphsink/cuda.h"
#include "graphsink/graphsink.h"
#include "test_ops.h"

namespace graphsink::fallback_test {
namespace {

struct Sum {
  Graph g;
  Value x = g.feed("x", f32, {1});
  Variable total{"total", Tensor({0.0f})};
  Sum() {
    assign(total, g.value(total) * 10.0 + x);
    g.record("x", sum(x));
  }
};

std::string first_line(const Program& p) {
  const std::string text = p.explain();
  return text.substr(0, text.find('\n'));
}

class Fallback : public ::testing::TestWithParam<const char*> {
 protected:
  void TearDown() override { emu::clear_faults(); }
};
std::string name_of(const ::testing::TestParamInfo<const char*>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Calls, Fallback,
                         ::testing::Values("cudaStreamBeginCapture", "cudaStreamEndCapture",
                                           "cudaGraphInstantiateWithParams", "cudaStreamGetCaptureInfo"),
                         name_of);

TEST_P(Fallback, OneFailedCaptureCostsOneLaunchAndNoStep) {
  Sum model;
  Program p = compile(model.g, {.target = cuda(0)});
  p.write(model.x, std::vector<float>{1});
  p.run(interactive);
  p.sync();
  emu::fail(GetParam(), 1, cudaErrorStreamCaptureInvalidated);
  p.run(sink);  // records, fails, and runs op by op
  EXPECT_EQ(p.counters().fallbacks, 1u);
  EXPECT_FALSE(p.captured().has_value());
  EXPECT_NE(first_line(p).find("; runs op by op, because its capture failed: cuda"), std::string::npos)
      << first_line(p);
  EXPECT_FALSE(p.plan().sinks_whole);
  EXPECT_NE(p.explain_json().find("\"sinks_whole\": false"), std::string::npos);
  p.run(sink);  // tries again
  EXPECT_NE(first_line(p).find("; sinks whole: 1 launch per step, or per many steps"), std::string::npos);
  EXPECT_TRUE(p.plan().sinks_whole);
  EXPECT_EQ(p.explain().find("op by op"), std::string::npos) << p.explain();
  EXPECT_EQ(p.counters().fallbacks, 1u);
  EXPECT_EQ(p.counters().graph_launches, 1u);
  EXPECT_EQ(p.records("x"), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(model.total.read().at(0), 111.0);
}

TEST_P(Fallback, AfterThreeFailuresTheReasonStays) {
  Sum model;
  Program p = compile(model.g, {.target = cuda(0)});
  p.write(model.x, std::vector<float>{1});
  emu::fail(GetParam(), 1, cudaErrorStreamCaptureInvalidated, true);
  for (int i = 0; i < 6; ++i) p.run(sink);
  emu::clear_faults();
  p.run(sink);
  EXPECT_EQ(p.counters().graph_launches, 0u);
  EXPECT_EQ(p.counters().fallbacks, 6u) << "all but the first, which is interactive anyway";
  EXPECT_NE(first_line(p).find("; runs op by op, because its capture failed: "), std::string::npos) << first_line(p);
  EXPECT_NE(first_line(p).find("; otherwise it sinks whole: 1 launch per step"), std::string::npos) << first_line(p);
  EXPECT_NE(p.explain().find("note: a step runs op by op"), std::string::npos) << p.explain();
  EXPECT_EQ(model.total.read().at(0), 1111111.0);
}

// Two launches around an op that the host issues.
TEST(FallbackOfParts, WhatWasCapturedIsKept) {
  auto copy = [](CudaArgs& a) {
    check_cuda(cudaMemcpyAsync(a.out<void>(0), a.in<void>(0), a.in_type(0).bytes(), cudaMemcpyDefault, a.stream()),
               "cudaMemcpyAsync", a);
  };
  const OpDef between{
      .name = "between", .infer = testing::infer_like_first, .traits = {.capturable = false}, .bodies = {copy}};
  Graph g;
  Value x = g.feed("x", f32, {1});
  g.output("y", emit(between, {x * 2.0})[0] + 1.0);
  Program p = compile(g, {.target = cuda(0)});
  p.write(x, std::vector<float>{3});
  p.run(interactive);
  emu::fail("cudaStreamEndCapture", 2, cudaErrorStreamCaptureInvalidated);
  p.run(sink);
  emu::clear_faults();
  EXPECT_EQ(p.counters().captures, 1u);
  EXPECT_EQ(p.counters().fallbacks, 1u);
  EXPECT_EQ(p.counters().graph_launches, 0u);
  p.run(sink);
  EXPECT_EQ(p.counters().captures, 2u) << "the first was there";
  EXPECT_EQ(p.counters().fallbacks, 1u);
  EXPECT_EQ(p.counters().graph_launches, 2u);
  EXPECT_EQ(p.output("y").at(0), 7.0);
}

// A launch that is refused leaves the plan as it was made: what turned out is told by the program.
TEST(FallbackOfParts, ARefusedLoopOverStepsIsAReasonOfTheProgram) {
  Sum model;
  Program p = compile(model.g, {.target = cuda(0)});
  p.write(model.x, std::vector<float>{1});
  p.run(sink);
  p.run(sink);
  emu::fail("cudaGraphInstantiateWithParams", 1, cudaErrorStreamCaptureInvalidated, true);
  for (int i = 0; i < 4; ++i) p.run(sink, {.steps = 2});
  emu::clear_faults();
  EXPECT_EQ(p.counters().fallbacks, 0u) << "every step was sunk";
  EXPECT_EQ(p.counters().graph_launches, 9u);
  const std::string expected = "a run of several steps takes several launches";
  EXPECT_NE(p.explain().find(expected), std::string::npos) << p.explain();
  EXPECT_NE(p.explain_json().find(expected), std::string::npos);
  EXPECT_EQ(p.explain().find("op by op"), std::string::npos) << p.explain();
  EXPECT_EQ(first_line(p).find("many steps"), std::string::npos) << first_line(p);
  EXPECT_NE(first_line(p).find("; sinks whole: 1 launch per step"), std::string::npos) << first_line(p);
  EXPECT_FALSE(p.plan().loop_over_steps);
  EXPECT_EQ(plan_of(p).explain().find(expected), std::string::npos);
}

// A loop, so that a capture into a body is under way inside another capture when the capture fails.
struct Countdown {
  Graph g;
  Value x = g.feed("x", f32, {1});
  Variable total{"total", Tensor({0.0f})};
  Countdown() {
    auto left = while_(
        {x}, [](Value v) { return sum(v) > 0.0; }, [](Value v) { return v - 1.0; });
    assign(total, g.value(total) * 10.0 + left[0] + x);
  }
};

// What CUDA leaves open: whether cudaStreamDestroy of a stream that is capturing ends the capture, or fails.
class UnendedCapture : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { emu::set_destroy_ends_capture(GetParam()); }
  void TearDown() override {
    emu::set_destroy_ends_capture(true);
    emu::reset();
  }

  template <class Model>
  void run_and_destroy(Model& model, int nth_end) {
    Program p = compile(model.g, {.target = cuda(0)});
    p.write(model.x, std::vector<float>{1});
    p.run(interactive);
    emu::fail("cudaStreamEndCapture", nth_end, cudaErrorInvalidResourceHandle, true);
    for (int i = 0; i < 3; ++i) p.run(sink);
    EXPECT_EQ(p.counters().graph_launches, 0u);
    EXPECT_EQ(p.counters().fallbacks, 3u);
    EXPECT_EQ(model.total.read().at(0), 1111.0);
    EXPECT_EQ(emu::last_failure(), "");
  }  // the streams of the capture are destroyed while they capture

  // Whatever is left of the capture that could not be ended, other programs of the thread capture and run.
  void expect_usable() {
    emu::clear_faults();
    EXPECT_EQ(emu::last_failure(), "");
    void* memory = nullptr;
    if (GetParam()) {
      EXPECT_EQ(cudaMalloc(&memory, 4), cudaSuccess) << "the capture is not over";
      EXPECT_EQ(cudaFree(memory), cudaSuccess);
    }
    Sum model;
    Program p = compile(model.g, {.target = cuda(0)});
    p.write(model.x, std::vector<float>{1});
    for (int i = 0; i < 3; ++i) p.run(sink);
    EXPECT_EQ(p.records("x"), (std::vector<float>{1, 1, 1}));
    EXPECT_EQ(p.counters().graph_launches, 2u);
    EXPECT_EQ(model.total.read().at(0), 111.0);
  }
};
INSTANTIATE_TEST_SUITE_P(Destroy, UnendedCapture, ::testing::Bool(), [](const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "EndsTheCapture" : "IsRefused";
});

TEST_P(UnendedCapture, CostsNoStepAndNoLaterProgram) {
  const emu::LiveObjects before = emu::live_objects();
  {
    Sum model;
    run_and_destroy(model, 1);
  }
  const emu::LiveObjects after = emu::live_objects();
  EXPECT_EQ(after.streams, before.streams + (GetParam() ? 0 : 1));
  EXPECT_EQ(after.graphs, before.graphs + (GetParam() ? 0 : 1));
  EXPECT_EQ(after.total() - after.streams - after.graphs, before.total() - before.streams - before.graphs);
  expect_usable();
}

TEST_P(UnendedCapture, OfALoopsBodyIsGivenUpBeforeThatAroundIt) {
  {
    Countdown model;
    run_and_destroy(model, 1);
  }
  expect_usable();
}

}  // namespace
}  // namespace graphsink::fallback_test
