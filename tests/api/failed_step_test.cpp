// A step that fails commits nothing and reports why, and the next step may run.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <thread>

#include "program_fixture.h"

namespace graphsink::failed_step_test {
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

TEST_P(OnDevice, SetStepsWaitsForStepsAndTellsOfAFailedOne) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Value x = g.input("x", f32, {1});
    Variable w("w", Tensor({10.0f}));
    assign(w, g.value(w) + emit(cpu_refuse_negative, {x})[0]);
    Program p = compile(g);
    p.write(x, std::vector<float>{-1});
    p.run(mode);
    EXPECT_THROW(p.set_steps(7), Error);
    p.set_steps(7);
    EXPECT_EQ(p.steps(), 7);
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

// The second update needs a copy from the host. Neither update may be committed before the host calls are known to have
// succeeded.
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
    EXPECT_THROW(p.records("y"), Error);
    EXPECT_EQ(p.records("y"), (std::vector<float>{2})) << "the failed step has recorded nothing";
    p.run(mode);
    EXPECT_THROW(p.output("y"), Error);
    EXPECT_NO_THROW(p.sync());
  }
}

// w += table[index]. The step fails for an index outside the table.
struct Lookup {
  Graph g;
  Value index = g.input("index", i32, {1});
  Variable w{"w", Tensor({10.0f})};

  Lookup() {
    Value row = gather(g.constant(Tensor({1.0f, 2.0f, 3.0f})), index);
    assign(w, g.value(w) + row);
    g.output("row", row);
    g.record("row", sum(row));
  }
  void run(Program& p, std::int32_t i, Mode mode) {
    p.write(index, std::vector<std::int32_t>{i});
    p.run(mode);
  }
};

TEST_P(OnDevice, ADestroyedProgramLogsAFailedStepThatNobodyAskedFor) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    std::vector<std::string> log;
    auto keep = [&](LogLevel, std::string_view message) { log.emplace_back(message); };
    Lookup lookup;
    {
      Program p = compile(lookup.g, {.log = keep});
      lookup.run(p, 1, mode);
      lookup.run(p, 7, mode);
    }
    ASSERT_EQ(log.size(), 1u);
    EXPECT_NE(log[0].find("a failed step that nobody asked for"), std::string::npos) << log[0];
    EXPECT_NE(log[0].find("gather: index 7 lies outside the axis, in step 1"), std::string::npos) << log[0];
    {
      Program p = compile(lookup.g, {.log = keep});
      lookup.run(p, 7, mode);
      EXPECT_THROW(p.sync(), Error);
    }
    EXPECT_EQ(log.size(), 1u) << "sync() has said it";
  }
}

TEST_P(OnDevice, AFailedStepMayBeLoggedInsteadOfThrown) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    std::vector<std::string> log;
    Lookup lookup;
    Program p = compile(lookup.g, {.log = [&](LogLevel, std::string_view message) { log.emplace_back(message); }});
    lookup.run(p, 1, mode);
    p.log_failed_step();
    EXPECT_EQ(log.size(), 0u);
    lookup.run(p, 7, mode);
    p.log_failed_step();
    ASSERT_EQ(log.size(), 1u);
    EXPECT_NE(log[0].find("gather: index 7 lies outside the axis, in step 1"), std::string::npos) << log[0];
    EXPECT_NO_THROW(p.sync()) << "the log has said it";
    lookup.run(p, 2, mode);
    EXPECT_EQ(lookup.w.read().at(0), 15.0) << "steps commit again";
    p.log_failed_step();
    EXPECT_EQ(log.size(), 1u);
  }
}

TEST_P(OnDevice, AReadOfAVariableThatAFailedStepWouldHaveWrittenSaysSoOnce) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Lookup lookup;
    Variable other("other", Tensor({1.0f}));
    lookup.g.output("other", lookup.g.value(other));
    Program p = compile(lookup.g);
    lookup.run(p, 1, mode);
    lookup.run(p, 3, mode);
    EXPECT_EQ(other.read().at(0), 1.0) << "the program only reads it";
    try {
      (void)lookup.w.read();
      FAIL() << "the failure was not reported";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), "gather");
      EXPECT_NE(std::string(e.what()).find("index 3 lies outside the axis, in step 1"), std::string::npos) << e.what();
    }
    EXPECT_EQ(lookup.w.read().at(0), 12.0);
    EXPECT_NO_THROW(p.sync()) << "said once";
    lookup.run(p, 2, mode);
    EXPECT_EQ(lookup.w.read().at(0), 15.0) << "steps commit again";
    EXPECT_EQ(p.steps(), 2);
  }
}

TEST_P(OnDevice, AReadOnAnotherThreadLeavesTheFailureToTheThreadOfTheProgram) {
  Lookup lookup;
  Program p = compile(lookup.g);
  lookup.run(p, 3, sink);
  std::thread([&] {
    EXPECT_THROW((void)lookup.w.read(), Error);
    EXPECT_EQ(lookup.w.read().at(0), 10.0) << "said once";
  }).join();
  EXPECT_THROW(p.sync(), Error);
  EXPECT_NO_THROW(p.sync());
  lookup.run(p, 2, sink);
  EXPECT_EQ(lookup.w.read().at(0), 13.0);
}

TEST_P(OnDevice, AReadOfAVariableSaysWhatABodyThrew) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Value x = g.input("x", f32, {1});
    Variable w("w", Tensor({10.0f}));
    assign(w, g.value(w) + emit(cpu_refuse_negative, {x})[0]);
    Program p = compile(g);
    p.write(x, std::vector<float>{-1});
    p.run(mode);
    EXPECT_EQ(p.steps(), 0) << "does not ask how they ended";
    try {
      (void)w.read();
      FAIL() << "the failure was not reported";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("refuse_negative: its body threw: negative input, in step 0"),
                std::string::npos)
          << e.what();
    }
    p.sync();
    EXPECT_EQ(w.read().at(0), 10.0);
  }
}

TEST_P(OnDevice, AVariableIsReadWhenItsProgramIsGone) {
  Lookup lookup;
  {
    Program p = compile(lookup.g, {.log = [](LogLevel, std::string_view) {}});
    lookup.run(p, 7, sink);
  }
  EXPECT_EQ(lookup.w.read().at(0), 10.0);
}

TEST_P(OnDevice, AFailedStepLeavesNoOutputs) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Lookup lookup;
    Program p = compile(lookup.g);
    lookup.run(p, 0, mode);
    EXPECT_EQ(p.output("row").at(0), 1.0);
    lookup.run(p, -1, mode);
    EXPECT_THROW(p.output("row"), Error);
    try {
      (void)p.output("row");
      FAIL() << "these are not the outputs of a step";
    } catch (const Error& e) {
      EXPECT_NE(e.problem().find("a step of the last run failed"), std::string::npos) << e.what();
    }
    EXPECT_NO_THROW(p.sync());
    lookup.run(p, 2, mode);
    EXPECT_EQ(p.output("row").at(0), 3.0);
  }
}

// Returns the error message of a failing step with the graph that `make` builds.
template <class Make>
std::string failure_of(DeviceId device, const Make& make, bool check_finite = false) {
  Graph g;
  make(g);
  Program p = graphsink::compile(g, {.target = device, .check_finite = check_finite});
  p.run(sink);
  p.run(sink);  // does nothing, because the failure has not been reported yet
  try {
    p.sync();
  } catch (const Error& e) {
    return e.op() + ": " + e.problem();
  }
  return "no failure";
}

TEST_P(OnDevice, AFailedStepSaysWhichValueWasBad) {
  Tensor indices({0, 1, -4}), targets({2, 5}), numbers({1.0f, 2.0f, 1000.0f});
  EXPECT_EQ(failure_of(GetParam(), [&](Graph& g) { g.output("x", gather(g.constant(numbers), g.constant(indices))); }),
            "gather: index -4 lies outside the axis, in step 0");
  EXPECT_EQ(failure_of(GetParam(),
                       [&](Graph& g) {
                         g.output("x", scatter_add(g.constant(numbers), g.constant(indices), g.constant(numbers)));
                       }),
            "scatter_add: index -4 lies outside the axis, in step 0");
  EXPECT_EQ(failure_of(GetParam(),
                       [&](Graph& g) {
                         g.output("x", cross_entropy(g.constant(Tensor(f32, {2, 3})), g.constant(targets)));
                       }),
            "cross_entropy: target 5 is not a class, in step 0");
  EXPECT_EQ(failure_of(
                GetParam(), [&](Graph& g) { g.output("x", exp(g.constant(numbers))); }, true),
            "exp: element 2 is not finite, in step 0");
}

// Functions that are made of several ops hide elements by -inf; so do gradients.
TEST_P(OnDevice, WhatIsInsideAFunctionNeedNotBeFinite) {
  struct Row {
    const char* name;
    std::function<Value(const Value&)> make;  // of [1, 1, 3, 2]
  };
  Tensor causal(boolean, {3, 3}), blind(boolean, {3, 3});  // no key is seen by the last query
  for (std::size_t i = 0; i < 9; ++i) causal.as<bool>()[i] = i % 3 <= i / 3;
  for (std::size_t i = 0; i < 6; ++i) blind.as<bool>()[i] = true;
  auto constant = [](const Value& x, const Tensor& tensor) { return Graph(x.graph()).constant(tensor); };
  auto flat = [](const Value& x) { return reshape(x, {6}); };
  const Row rows[] = {
      {"attention with a mask", [&](const Value& q) { return attention(q, q, q, constant(q, causal)); }},
      {"a query that sees nothing", [&](const Value& q) { return attention(q, q, q, constant(q, blind)); }},
      {"attention with a bias, causal",
       [&](const Value& q) {
         return attention(q, q, q, constant(q, Tensor(f32, {3, 3})), {.causal = true});
       }},
      {"attention with a bias of -inf",
       [&](const Value& q) {
         Tensor bias(f32, {3, 3});
         bias.as<float>()[2] = -std::numeric_limits<float>::infinity();
         return attention(q, q, q, constant(q, bias));
       }},
      {"softmax of Padded", [&](const Value& x) { return softmax(masked_select(flat(x), flat(x) > 0.5, 6)).values; }},
      {"the norm of a batch",
       [&](const Value& x) { return batch_norm(x, constant(x, Tensor({1.0f})), constant(x, Tensor({0.0f}))).y; }},
  };
  for (const auto& [name, make] : rows) {
    for (bool in_loop : {false, true}) {
      SCOPED_TRACE(std::string(name) + (in_loop ? ", in a loop" : ""));
      Graph g;
      Value q = g.input("q", f32, {1, 1, 3, 2});
      Value y = in_loop ? scan({q}, {},
                               [&](const Values& state, const Values&) {
                                 return Scan{{state[0] + sum(make(state[0])) * 0.01}, {}};
                               },
                               {.iterations = 3})
                              .state[0]
                        : make(q);
      g.output("y", y);
      g.output("slope", grad(sum(y * y), {q})[0]);
      Program p = compile(g, {.check_finite = true});
      p.write(q, Tensor({1, 1, 3, 2}, std::vector<float>{.1f, .9f, .3f, .7f, .6f, .2f}));
      for (Mode mode : {interactive_serial, sink}) {
        p.run(mode);
        EXPECT_NO_THROW(p.sync());
      }
    }
  }
}

// What the user wrote, not an op that it is made of. One number is bad in each: of several, kernels report any.
TEST_P(OnDevice, ANumberThatIsNotFiniteNamesWhatTheUserWrote) {
  const float inf = std::numeric_limits<float>::infinity();
  auto failure = [&](const auto& make) {
    return failure_of(
        GetParam(), [&](Graph& g) { g.output("y", make(g)); }, true);
  };
  EXPECT_EQ(failure([&](Graph& g) {
              Value q = g.constant(Tensor({1, 1, 1, 1}, std::vector<float>{1}));
              Value k = g.constant(Tensor({1, 1, 2, 1}, std::vector<float>{1, inf}));
              return attention(q, k, k, g.constant(Tensor(f32, {1, 2})));
            }),
            "attention: element 0 is not finite, in step 0");
  EXPECT_EQ(failure([&](Graph& g) {
              Value x = g.constant(Tensor({2.0f, inf, 1.0f}));
              return mean(masked_select(x, x > 1.0, 3));
            }),
            "masked_select: element 1 is not finite, in step 0");
  EXPECT_EQ(failure([&](Graph& g) {
              Value x = g.constant(Tensor({2.0f, 1.0f}));
              return mean(masked_select(x, x > 5.0, 3));
            }),
            "mean: element 0 is not finite, in step 0");
  EXPECT_EQ(failure([&](Graph& g) {
              Value x = g.constant(Tensor({2, 1}, std::vector<float>{1e30f, -1e30f}));
              return batch_norm(x, g.constant(Tensor({1.0f})), g.constant(Tensor({0.0f}))).variance;
            }),
            "batch_norm: element 0 is not finite, in step 0")
      << "a result that only shows another value";
  EXPECT_EQ(failure([&](Graph& g) {
              Value x = g.constant(Tensor({4.0f, 0.0f}));
              return grad(sum(sqrt(x)), {x})[0];
            }),
            "gradient of sqrt: element 1 is not finite, in step 0");
  EXPECT_EQ(failure([&](Graph& g) {
              Variable w("w", Tensor(f32, {4}));
              Value loss = sum(g.value(w) * 3e38);  // the norm of the gradients is 6e38
              sgd(loss, {w}, {.momentum = 0.5, .gradients = {.clip_norm = 1}});
              return loss;
            }),
            "sgd: element 0 is not finite, in step 0");
}

}  // namespace
}  // namespace graphsink::failed_step_test
