// Steps that fail commit nothing, say why, and the next step may run.
#include <gtest/gtest.h>

#include "program_fixture.h"

namespace graphsink {
namespace {

using testing::cpu_refuse_negative;
using testing::OnDevice;

TEST_P(OnDevice, ThrowingCpuOpFailsTheStepAndCommitsNothing) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Value x = g.input("x", f32, {1});
    Variable w("w", Tensor({10.0f}));
    assign(w, g.value(w) + emit(cpu_refuse_negative, {x})[0]);
    Program p = compile(g);
    for (int i = 0; i < 3; ++i) {
      p.write(x, std::vector<float>{1});
      p.run(mode);
    }
    p.sync();
    p.write(x, std::vector<float>{-1});
    p.run(mode);
    try {
      p.sync();
      FAIL() << "the failure was not reported";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), "refuse_negative");
      EXPECT_NE(std::string(e.what()).find("negative input"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("failed_step_test.cpp"), std::string::npos) << e.what();
    }
    EXPECT_EQ(w.read().at(0), 13.0);
    EXPECT_EQ(p.steps(), 3);
    p.write(x, std::vector<float>{2});
    p.run(mode);
    p.sync();
    EXPECT_EQ(w.read().at(0), 15.0);
    EXPECT_EQ(p.steps(), 4);
  }
}

TEST_P(OnDevice, NonFiniteValueFailsTheStepAndNamesTheOp) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Value x = g.feed("x", f32, {4});
    Variable w("w", Tensor({1.0f, 1.0f, 1.0f, 1.0f}));
    assign(w, exp(x) * w);
    g.record("s", sum(x));
    Program p = compile(g, {.check_finite = true});
    p.write(x, std::vector<float>{0, 0, 0, 0, 0, 0, 0, 0, 1000, 0, 0, 0, 0, 0, 0, 0});
    p.run(mode, {.steps = 4});
    try {
      p.sync();
      FAIL() << "the failure was not reported";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), "exp");
      EXPECT_NE(std::string(e.what()).find("step 2"), std::string::npos) << e.what();
    }
    EXPECT_EQ(p.steps(), 2) << "the failed step and those after it in the launch commit nothing";
    EXPECT_EQ(w.read().at(0), 1.0);
    p.write(x, std::vector<float>{0, 0, 0, 0});
    p.run(mode);
    p.sync();
    EXPECT_EQ(p.steps(), 3);
  }
}

// The second update needs a copy from the host. Neither may be committed before the host calls are known to be good.
TEST_P(OnDevice, ThrowingCpuOpStopsEveryCommit) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Value x = g.input("x", f32, {1});
    Variable v("v", Tensor({10.0f})), w("w", Tensor({10.0f}));
    sgd(sum(g.value(v)), {v}, {.lr = 1});
    sgd(sum(g.value(w)), {w}, {.lr = emit(cpu_refuse_negative, {x})[0]});
    Program p = compile(g);
    for (int i = 0; i < 2; ++i) {
      p.write(x, std::vector<float>{1});
      p.run(mode);
      p.sync();
      p.write(x, std::vector<float>{-1});
      p.run(mode);
      EXPECT_THROW(p.sync(), Error);
      EXPECT_EQ(v.read().at(0), 9.0 - i);
      EXPECT_EQ(w.read().at(0), 9.0 - i);
    }
  }
}

TEST_P(OnDevice, ReadsReportAFailedStepOnce) {
  Graph g;
  Value x = g.input("x", f32, {1});
  Value y = emit(cpu_refuse_negative, {x})[0];
  g.record("y", sum(y));
  g.output("y", y);
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Program p = compile(g);
    p.write(x, std::vector<float>{2});
    p.run(mode);
    p.sync();
    p.write(x, std::vector<float>{-1});
    p.run(mode);
    EXPECT_THROW(p.read("y"), Error);
    EXPECT_EQ(p.read("y"), (std::vector<float>{2})) << "the failed step has recorded nothing";
    p.run(mode);
    EXPECT_THROW(p.read_output("y"), Error);
    EXPECT_NO_THROW(p.sync());
  }
}

}  // namespace
}  // namespace graphsink
