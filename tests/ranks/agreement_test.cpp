// Ranks agree on their plans, and on every step before it commits.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "program_fixture.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace agreement_test {

class Agreement : public OnRanks {
 protected:
  static int me() { return world().rank(); }
  // The rank that makes a mistake; the others do not.
  static int bad() { return world().size() - 1; }
};

INSTANTIATE_TEST_SUITE_P(Devices, Agreement, ::testing::ValuesIn(rank_ways()), rank_way_name);

// How a step fails on one rank: what is written there, and what the Error says. What is not finite is given to no
// collective, so that the other ranks hear of it by the agreement alone.
struct Failure {
  const char* what;
  std::int32_t index = 0;
  float last = 1;  // element
  bool checks_all = false;
  const char *op, *reason;
};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Failure kFailures[] = {
    {.what = "an index", .index = 7, .op = "gather: ", .reason = "index 7 lies outside"},
    {.what = "check_finite()", .last = kNan, .op = "check_finite: ", .reason = "element 3 is not finite"},
    {.what = "CompileOptions", .last = kNan, .checks_all = true, .op = "mul: ", .reason = "element 3 is not finite"},
};

// A step adds 1 to a Variable, and counts on all ranks.
struct Counting {
  Counting(const DeviceId& device, bool checks_all)
      : program(compile(graph(checks_all), {.target = device, .check_finite = checks_all})) {}

  Graph graph(bool checks_all) {
    Graph g;
    index = g.input("index", i32, Shape{1});
    x = g.input("x", f32, Shape{4});
    const Value row = gather(g.constant(Tensor::full(f32, {4, 2}, 1.0)), index), twice = mul(x, 2.0);
    g.output("twice", checks_all ? twice : check_finite(twice));
    g.output("sum", all_reduce(sum(row), world()));
    g.assign(count, add(g.value(count), 1.0));
    return g;
  }
  // Returns the problem.
  std::string step(Mode mode, std::int32_t index_value, float last) {
    Tensor place(i32, {1}), values = Tensor::full(f32, {4}, 1.0);
    place.as<std::int32_t>()[0] = index_value;
    values.as<float>()[3] = last;
    program.write(index, place);
    program.write(x, values);
    return problem_of([&] {
      program.run(mode);
      program.sync();
    });
  }
  float counted() const { return count.read().as<float>()[0]; }

  Variable count{"count", Tensor::scalar(0.0f)};
  Value index, x;
  Program program;
};

TEST_P(Agreement, AStepThatFailsOnOneRankCommitsOnNone) {
  for (const Failure& failure : kFailures)
    for (const Mode mode : kAllModes) {
      SCOPED_TRACE(std::string(failure.what).append(", ").append(to_string(mode)));
      Counting counting(GetParam().device, failure.checks_all);
      EXPECT_EQ(counting.step(mode, 0, 1), "");
      EXPECT_EQ(counting.counted(), 1);
      const bool fails = me() == bad();
      const std::string problem = counting.step(mode, fails ? failure.index : 0, fails ? failure.last : 1);
      EXPECT_EQ(counting.counted(), 1);
      const std::string told = "the step failed on rank " + std::to_string(bad()) + ": ";
      EXPECT_TRUE(has(problem, (fails ? failure.op : told) + failure.reason)) << problem;
      EXPECT_FALSE(has(problem, "its body threw")) << problem;
      EXPECT_EQ(counting.step(mode, 0, 1), "");
      EXPECT_EQ(counting.counted(), 2);
      EXPECT_EQ(counting.program.output("sum").at(0), 2.0 * world().size());
    }
}

// Which of these a rank runs in depends on clocks where the mode is automatic.
TEST_P(Agreement, RanksMayRunInDifferentModes) {
  if (GetParam().nccl) return;  // they may not there
  Graph g;
  const Value index = g.feed("index", i32, Shape{1});
  const Value row = gather(g.constant(Tensor::full(f32, {4, 2}, 1.0)), index);
  g.output("sum", all_reduce(mul(all_reduce(sum(row), world()), 2.0), world()));
  Variable count("count", Tensor::scalar(0.0f));
  g.assign(count, add(g.value(count), 1.0));
  Program program = compile(g);
  constexpr std::size_t kModesInAll = std::size(kAllModes);
  float expected = 0;
  for (std::size_t run = 0; run < 4 * kModesInAll; ++run) {
    const Mode mode = kAllModes[(run + static_cast<std::size_t>(me()) * (run / kModesInAll)) % kModesInAll];
    const std::int64_t fails = run % 3 == 0 ? static_cast<std::int64_t>(run % 8) : 8;
    Tensor indices(i32, {8, 1});
    if (me() == bad() && fails < 8) indices.as<std::int32_t>()[static_cast<std::size_t>(fails)] = 99;
    program.write(index, indices);
    const std::string problem = problem_of([&] {
      program.run(mode, {.steps = 8});
      program.sync();
    });
    EXPECT_EQ(problem.empty(), fails == 8) << to_string(mode) << ": " << problem;
    expected += static_cast<float>(fails);
    ASSERT_EQ(count.read().at(0), expected) << to_string(mode) << ", run " << run;
  }
}

TEST_P(Agreement, BatchesMayHaveOtherSizesOnEachRank) {
  Graph g;
  const Value x = g.input("x", f32, {open(4), 2});
  const Variable w("w", Tensor::full(f32, {2, 1}, 1.0));
  const Value loss = sum(matmul(x, w));
  g.output("gradient", all_reduce(grad(loss, {w})[0], world()));
  Program program = compile(g);
  for (int run = 0; run < 3; ++run) {
    const std::int64_t rows = 3 + (me() + run) % 3;
    program.write(x, Tensor::full(f32, {rows, 2}, 1.0));
    program.run(sink);
    double expected = 0;
    for (int rank = 0; rank < world().size(); ++rank) expected += 3 + (rank + run) % 3;
    EXPECT_EQ(program.output("gradient").at(0), expected);
  }
}

TEST_P(Agreement, OfSeveralStepsThoseBeforeTheFailureCommit) {
  Graph g;
  const Value index = g.feed("index", i32, Shape{1});
  const Value row = gather(g.constant(Tensor::full(f32, {4, 2}, 1.0)), index);
  g.output("sum", all_reduce(sum(row), world()));
  Variable count("count", Tensor::scalar(0.0f));
  g.assign(count, add(g.value(count), 1.0));
  Program program = compile(g);
  Tensor indices(i32, {8, 1});
  if (me() == bad()) indices.as<std::int32_t>()[5] = -9;
  for (const Mode mode : {interactive_serial, sink}) {
    count.write(Tensor::scalar(0.0f));
    program.write(index, indices);
    EXPECT_NE(problem_of([&] {
                program.run(mode, {.steps = 8});
                program.sync();
              }),
              "");
    EXPECT_EQ(count.read().at(0), 5) << to_string(mode);
  }
}

void throw_nothing(const CpuArgs& a) {
  if (a.in<float>(0)[0] > 1) throw std::runtime_error("");
  a.out<float>(0)[0] = 1;
}
const OpDef silent_op{.name = "silent", .infer = infer_like_first, .bodies = {throw_nothing}};

TEST_P(Agreement, AFailureWithoutATextIsOne) {
  Graph g;
  const Value x = g.input("x", f32, Shape{1});
  g.output("y", all_reduce(emit(silent_op, {x})[0], world()));
  Program program = compile(g);
  program.write(x, Tensor::full(f32, {1}, me() == bad() ? 2.0 : 0.0));
  EXPECT_THROW(
      {
        program.run(sink);
        program.sync();
      },
      Error);
}

TEST_P(Agreement, ThrownTextsOfOneRankReachTheOthers) {
  Graph g;
  const Value x = g.input("x", f32, Shape{2});
  ExternalOp op{.name = "picky", .outputs = {{f32, {2}}}};
  op.cpu = [](const CpuArgs& a) {
    if (me() == bad() && a.in<float>(0)[0] > 1) throw std::runtime_error("no more of that");
    a.out<float>(0)[0] = a.out<float>(0)[1] = 1;
  };
  g.output("y", all_reduce(external_op(op, {x})[0], world()));
  Program program = compile(g);
  for (const Mode mode : kAllModes) {
    program.write(x, Tensor::full(f32, {2}, 2.0));
    const std::string problem = problem_of([&] {
      program.run(mode);
      program.sync();
    });
    // A device tells the others only that an op failed.
    EXPECT_TRUE(has(problem, me() != bad() && GetParam().nccl ? "an op failed" : "no more of that")) << problem;
    EXPECT_EQ(has(problem, "on rank " + std::to_string(bad())), me() != bad()) << problem;
    program.write(x, Tensor::full(f32, {2}, 0.0));
    EXPECT_EQ(problem_of([&] {
                program.run(mode);
                program.sync();
              }),
              "");
  }
}

// The first collective that differs is named, on all ranks.
TEST_P(Agreement, PlansWithDifferentCollectivesAreRefused) {
  if (world().size() == 1) return;
  struct Row {
    const char* what;
    Value (*build)(const Value&, bool is_other);
    const char* named;
    int number = 1;
  };
  const Row rows[] = {
      {"another op",
       [](const Value& x, bool is_other) { return is_other ? all_to_all(x, world()) : all_reduce(x, world()); },
       "is all_to_all"},
      {"another reduction",
       [](const Value& x, bool is_other) {
         return all_reduce(x, world(), {is_other ? Reduction::max : Reduction::sum});
       },
       "is all_reduce (max"},
      {"another size",
       [](const Value& x, bool is_other) {
         return all_reduce(is_other ? x[Index{0, 2}] : x, world());
       },
       "f32[2]"},
      {"another dtype",
       [](const Value& x, bool is_other) { return cast(all_reduce(is_other ? cast(x, f64) : x, world()), f32); },
       "f64["},
      {"another order",
       [](const Value& x, bool is_other) {
         return is_other ? all_reduce(all_to_all(x, world()), world()) : all_to_all(all_reduce(x, world()), world());
       },
       "is all_to_all"},
      {"a missing one", [](const Value& x, bool is_other) { return is_other ? x : all_reduce(x, world()); },
       "no further one"},
      {"one more",
       [](const Value& x, bool is_other) {
         return is_other ? all_gather(all_gather(x, world()), world()) : all_gather(x, world());
       },
       "no further one", 2},
  };
  for (const Row& row : rows) {
    Graph g;
    const Value x = g.input("x", f32, Shape{24});
    const Value first = all_reduce(x, world());
    g.output("y", row.build(first, me() == bad()));
    Program program = compile(g);
    program.write(x, Tensor::full(f32, {24}, 1.0));
    const std::string problem = problem_of([&] { program.run(sink); });
    EXPECT_TRUE(has(problem, "number " + std::to_string(row.number) + " of rank 0 is ")) << row.what << ": " << problem;
    EXPECT_TRUE(has(problem, row.named)) << row.what << ": " << problem;
    EXPECT_TRUE(has(problem, "of rank " + std::to_string(bad()))) << row.what << ": " << problem;
  }
}

TEST_P(Agreement, ConditionsOfOneRankStopAll) {
  Graph g;
  const Value x = g.input("x", f32, Shape{});
  const Value total = all_reduce(x, world());
  g.record("total", total);
  g.stop_when(greater(all_reduce(x, world(), {Reduction::max}), 2.5));
  Program program = compile(g);
  program.write(x, Tensor::scalar(me() == bad() ? 3.0f : 1.0f));
  for (const Mode mode : kAllModes) {
    try {
      program.run(mode, {.steps = 4});
      program.sync();
      ADD_FAILURE() << to_string(mode);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::stopped) << e.what();
    }
    EXPECT_EQ(program.records("total").size(), 1u) << to_string(mode);
  }
}

// A step that exchanges values in two Comms leaves both to others.
TEST(AgreementOfTwoComms, BothAreFreeBehindTheStep) {
  const Comm other = graphsink::world({.patience_s = 120});
  Graph g;
  const Value x = g.input("x", f32, Shape{});
  g.output("y", all_reduce(all_reduce(x, world()), other));
  Program program = compile(g, {.target = cpu()});
  program.write(x, Tensor::scalar(1.0f));
  program.run(sink);
  program.sync();
  EXPECT_EQ(program.output("y").at(0), world().size() * world().size());
  world().barrier();
  other.barrier();
}

}  // namespace agreement_test
}  // namespace graphsink::testing
