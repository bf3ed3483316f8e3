// Variables of programs: what is read and written, and when.
#include <gtest/gtest.h>

#include "program_fixture.h"

namespace graphsink::variable_test {
namespace {

using testing::kModes;
using testing::OnDevice;

TEST_P(OnDevice, ReadsOfAVariableAreThoseBeforeTheCommit) {
  Graph g;
  Variable n("n", Tensor::scalar(1.0f)), w("w", Tensor::scalar(1.0f));
  Value old_n = g.value(n), old_w = g.value(w);
  assign(n, old_n * 2.0);
  sgd(old_w * 0.5, {w}, {.lr = 1});
  g.record("n", old_n);
  g.record("w", old_w);
  g.output("n", old_n);
  g.output("w", old_w);
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    n.write(Tensor::scalar(1.0f));
    w.write(Tensor::scalar(1.0f));
    Program p = compile(g);
    for (int i = 0; i < 3; ++i) p.run(mode);
    EXPECT_EQ(p.records("n"), (std::vector<float>{1, 2, 4}));
    EXPECT_EQ(p.records("w"), (std::vector<float>{1, 0.5, 0}));
    EXPECT_EQ(p.output("n").at(0), 4.0);
    EXPECT_EQ(p.output("w").at(0), 0.0);
    EXPECT_EQ(n.read().at(0), 8.0);
    EXPECT_EQ(w.read().at(0), -0.5);
  }
}

TEST_P(OnDevice, TheStepAsAnOutputIsThatOfTheRun) {
  Graph g;
  g.output("step", g.step());
  g.output("vector", reshape(g.step(), {1}));
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Program p = compile(g);
    for (int i = 0; i < 3; ++i) {
      p.run(mode);
      EXPECT_EQ(p.output("step").at(0), i);
      EXPECT_EQ(p.output("vector").at(0), i);
    }
    p.run(mode, {.steps = 2});
    EXPECT_EQ(p.output("step").at(0), 4);
  }
}

TEST_P(OnDevice, AVariableIsWrittenAfterTheRunsBefore) {
  Graph g;
  Variable n("n", Tensor::scalar(0.0f));
  assign(n, g.value(n) + 1.0);
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Program p = compile(g);
    for (double start : {10.0, 20.0}) {
      for (int i = 0; i < 3; ++i) p.run(mode);
      n.write(Tensor::scalar(static_cast<float>(start)));
      p.run(mode);
      p.run(mode);
      EXPECT_EQ(n.read().at(0), start + 2);
    }
  }
}

TEST_P(OnDevice, AVariableStaysOnItsDevice) {
  Variable n("n", Tensor::scalar(1.0f));
  auto graph_with_n = [&] {
    Graph g;
    g.output("twice", g.value(n) * 2.0);
    return g;
  };
  Program here = compile(graph_with_n());
  here.run();
  EXPECT_EQ(here.output("twice").at(0), 2.0);
  for (DeviceId other : testing::devices()) {
    if (other == GetParam()) continue;
    Program there = graphsink::compile(graph_with_n(), {.target = other});
    try {
      there.run();
      FAIL() << "the Variable is on two devices";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), "Variable \"n\"");
      EXPECT_NE(e.problem().find(to_string(GetParam())), std::string::npos) << e.what();
      EXPECT_FALSE(e.remedy().empty());
    }
  }
}

}  // namespace
}  // namespace graphsink::variable_test
