// Tests CompileOptions::guards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "program_fixture.h"

namespace graphsink::guards_test {
namespace {

using testing::OnDevice;

struct Calls {
  std::shared_ptr<int> count;
};
void count_calls(const CpuArgs& a) {
  ++*a.attrs<Calls>().count;
  std::copy_n(a.in<float>(0), a.in_type(0).shape.size(), a.out<float>(0));
}
const OpDef count_calls_op{.name = "count_calls",
                           .infer = testing::infer_like_first,
                           .traits = {.host_effect = true},
                           .bodies = {count_calls}};

// A training step with everything that a run can change.
struct Training {
  Graph g;
  Variable w{"w", Tensor::uniform({4, 3}, 1)};
  Value x = g.feed("x", f32, {2, 4});
  std::shared_ptr<int> calls = std::make_shared<int>(0);

  Training() {
    Value loss = sum(tanh(matmul(emit(count_calls_op, {x}, Calls{calls})[0], w)) * random_uniform(g, f32, {2, 3}));
    g.output("sum", sum(g.value(w)));
    adamw(loss, {w}, {.lr = 0.1});
    g.record("loss", loss);
  }
};

TEST_P(OnDevice, ReplayedAndPoisonedRunsGiveTheSameBits) {
  auto results = [&](const Guards& guards, int& calls) {
    Training t;
    Program p = compile(t.g, {.guards = guards});
    p.write(t.x, Tensor::uniform({4, 2, 4}, 2));
    for (int i = 0; i < 3; ++i) p.run(sink, {.steps = 4});
    Tensor w = t.w.read();
    std::vector<double> seen = p.records<double>("loss");
    for (float value : w.as<float>()) seen.push_back(value);
    seen.push_back(p.output("sum").at(0));
    seen.push_back(static_cast<double>(p.steps()));
    calls = *t.calls;
    return seen;
  };
  int calls = 0;
  std::vector<double> plain = results({}, calls);
  EXPECT_EQ(plain.size(), 12u + 12 + 2);
  EXPECT_EQ(calls, 12);
  EXPECT_EQ(results({.poison = true}, calls), plain);
  EXPECT_EQ(calls, 12);
  EXPECT_EQ(results({.replay_every = 1}, calls), plain);
  EXPECT_EQ(calls, 24) << "every run is made twice";
  EXPECT_EQ(results({.poison = true, .replay_every = 2}, calls), plain);
  EXPECT_EQ(calls, 16) << "one run of three is";
}

TEST_P(OnDevice, AFailedStepIsReportedByTheAuditedRunToo) {
  Graph g;
  Value x = g.feed("x", f32, {1});
  Variable w("w", Tensor({1.0f}));
  assign(w, exp(x) * w);
  Program p = compile(g, {.check_finite = true, .guards = {.replay_every = 1}});
  p.write(x, std::vector<float>{1000});
  p.run(sink);
  try {
    p.sync();
    FAIL() << "the failure was not reported";
  } catch (const Error& e) {
    EXPECT_EQ(e.op(), "exp");
  }
  EXPECT_EQ(p.steps(), 0);
  p.write(x, std::vector<float>{0});
  p.run(sink);
  p.sync();
  EXPECT_EQ(p.steps(), 1);
  EXPECT_EQ(w.read().at(0), 1.0);
}

// What is in the memory of outputs behind a failed step depends on the mode.
TEST_P(OnDevice, AnAuditedRunReportsTheStepThatFailed) {
  for (std::size_t bad = 0; bad < 5; ++bad) {
    SCOPED_TRACE("step " + std::to_string(bad));
    Graph g;
    Value i = g.feed("i", i32, {1}), row = gather(g.constant(Tensor({1.0f, 10.0f, 100.0f})), i);
    Variable v("v", Tensor({0.0f}));
    g.output("y", row * 2.0);
    assign(v, g.value(v) + row);
    Program p = compile(g, {.guards = {.replay_every = 1}});
    std::vector<std::int32_t> indices{0, 1, 2, 1, 0};
    double sum = 0;
    for (std::size_t k = 0; k < bad; ++k) sum += std::pow(10.0, indices[k]);
    indices[bad] = 3;
    p.write(i, Tensor({5, 1}, indices));
    EXPECT_NO_THROW(p.run(sink, {.steps = 5}));
    try {
      p.sync();
      FAIL() << "the failure was not reported";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), "gather");
      EXPECT_EQ(e.problem(), "index 3 lies outside the axis, in step " + std::to_string(bad));
    }
    EXPECT_EQ(p.steps(), static_cast<std::int64_t>(bad));
    EXPECT_EQ(v.read().at(0), sum);
  }
}

TEST_P(OnDevice, AnAuditedRunMayFindAnotherSize) {
  Graph g;
  Value x = g.feed("x", f32, {4});
  const Padded found = masked_select(x, x > 0);
  g.output("values", found.values * 2.0);
  g.record("sum", sum(found));
  Program p = compile(g, {.guards = {.poison = true, .replay_every = 1}});
  p.write(x, Tensor({4, 4}, std::vector<float>{1, 2, 3, 4, 0, 0, 5, 0, 6, 0, 7, 0, 0, 8, 9, 1}));
  EXPECT_NO_THROW(p.run(sink, {.steps = 4}));
  EXPECT_EQ(p.output("values").shape(), (Shape{3}));
  EXPECT_EQ(p.output("values").at(2), 2.0);
  EXPECT_EQ(p.records<double>("sum"), (std::vector<double>{10, 5, 13, 18}));
}

// Adds to its output, which it never initialised.
void accumulate(const CpuArgs& a) {
  for (std::int64_t i = 0; i < a.in_type(0).shape[0]; ++i) a.out<float>(0)[i] += a.in<float>(0)[i];
}
const OpDef accumulate_op{.name = "accumulate", .infer = testing::infer_like_first, .bodies = {accumulate}};

TEST_P(OnDevice, PoisonShowsWhatNobodyWrote) {
  auto result = [&](bool poison, std::int64_t size) {
    Graph g;
    Value x = g.input("x", f32, {size});
    g.output("y", emit(accumulate_op, {x})[0]);
    Program p = compile(g, {.guards = {.poison = poison}});
    p.write(x, std::vector<float>(static_cast<std::size_t>(size), 2));
    p.run(interactive);
    return p.output("y").at(size - 1);
  };
  EXPECT_EQ(result(false, 1), 2.0) << "fresh memory happens to be zero";
  EXPECT_TRUE(std::isnan(result(true, 1)));
  EXPECT_TRUE(std::isnan(result(true, 10'000))) << "to its end";
}

// Returns a different result each time.
const OpDef unstable_op{
    .name = "unstable",
    .infer = testing::infer_like_first,
    .bodies = {[](const CpuArgs& a) { *a.out<float>(0) = static_cast<float>(++*a.attrs<Calls>().count); }}};

TEST(Guards, AReplayThatDiffersIsAnError) {
  Graph g;
  Variable w("w", Tensor({0.0f}));
  assign(w, emit(unstable_op, {g.value(w)}, Calls{std::make_shared<int>(0)})[0]);
  Program p = compile(g, {.guards = {.replay_every = 2}});
  p.run(sink);
  try {
    p.run(sink);
    FAIL() << "the difference was not reported";
  } catch (const Error& e) {
    EXPECT_EQ(e.op(), "replay audit");
    EXPECT_EQ(e.problem(),
              "Variable \"w\" differs between op by op and sunk: element 0 is 2 and 3, in the run that "
              "began at step 1");
    EXPECT_EQ(e.remedy().find("CUDA"), std::string::npos) << e.what();
    EXPECT_NE(e.remedy().find("does not compute the same each time"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace graphsink::guards_test
