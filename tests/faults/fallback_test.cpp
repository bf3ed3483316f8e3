// A recording that fails loses no step: the software device makes calls fail while a Program records.
#include <gtest/gtest.h>

#include "emulator.h"
#include "graphsink/graphsink.h"

namespace graphsink {
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

class Fallback : public ::testing::TestWithParam<const char*> {
 protected:
  void TearDown() override { emu::clear_faults(); }
};
std::string name_of(const ::testing::TestParamInfo<const char*>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Calls, Fallback,
                         ::testing::Values("cudaStreamBeginCapture", "cudaStreamEndCapture",
                                           "cudaGraphInstantiateWithParams", "cudaStreamGetCaptureInfo"),
                         name_of);

TEST_P(Fallback, OneFailedRecordingCostsOneLaunchAndNoStep) {
  Sum model;
  Program p = compile(model.g, {.target = cuda(0)});
  p.write(model.x, std::vector<float>{1});
  p.run(interactive);
  p.sync();
  emu::fail(GetParam(), 1, cudaErrorStreamCaptureInvalidated);
  p.run(sink);  // records, fails, and runs op by op
  EXPECT_EQ(p.counters().fallbacks, 1u);
  EXPECT_FALSE(p.recording().has_value());
  p.run(sink);  // tries again
  EXPECT_EQ(p.counters().fallbacks, 1u);
  EXPECT_EQ(p.counters().graph_launches, 1u);
  EXPECT_EQ(p.read("x"), (std::vector<float>{1, 1, 1}));
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
  EXPECT_NE(p.explain().find("runs op by op"), std::string::npos) << p.explain();
  EXPECT_EQ(model.total.read().at(0), 1111111.0);
}

}  // namespace
}  // namespace graphsink
