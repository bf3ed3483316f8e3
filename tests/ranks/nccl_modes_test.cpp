// Ranks whose values NCCL moves, and that do not run alike: a collective is captured on all of them or on none.
#ifdef GRAPHSINK_EMULATED
#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <string>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "rank_world.h"
#include "test_ops.h"

namespace graphsink::testing {
namespace nccl_modes_test {

int me() { return world_of_nccl().rank(); }
int ranks() { return world_of_nccl().size(); }
int bad() { return ranks() - 1; }

class NcclModes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ranks() == 1) GTEST_SKIP() << "one rank exchanges nothing";
  }
};

Value on_host(const Value& x) {
  ExternalOp op{.name = "host", .outputs = {{f32, {}}}};
  op.cpu = [](const CpuArgs& a) { a.out<float>(0)[0] = a.in<float>(0)[0]; };
  return external_op(op, {x})[0];
}

// A step that counts itself with the others, and has an op on the host if `splits`.
struct Step {
  Step(const Comm& comm, bool splits) : program(compile(graph(comm, splits), {.target = cuda(0)})) {}
  Graph graph(const Comm& comm, bool splits) {
    Graph g;
    const Value one = add(mul(g.value(count), 0.0), 1.0);
    const Value all = all_reduce(splits ? on_host(one) : one, comm, {.reduction = Reduction::mean});
    g.assign(count, add(g.value(count), all));
    return g;
  }
  void run(Mode mode, int runs = 1) {
    for (int i = 0; i < runs; ++i) program.run(mode);
    program.sync();
  }

  Variable count{"count", Tensor::scalar(0.0f)};
  Program program;
};

TEST_F(NcclModes, RanksInOtherModesHearOfIt) {
  constexpr Mode kPairs[][2] = {{sink, split_sink},
                                {sink, interactive_serial},
                                {interactive_serial, sink},
                                {interactive_parallel, split_parallel}};
  for (const auto& [most, other] : kPairs) {
    Step step(world_of_nccl(), true);
    const std::string problem = problem_of([&] { step.run(me() == bad() ? other : most); });
    EXPECT_EQ(problem, "run: rank 0 is about to run in mode " + std::string(to_string(most)) +
                           " for the first time, and rank " + std::to_string(bad()) + " to run in mode " +
                           std::string(to_string(other)) + " for the first time");
    EXPECT_EQ(step.count.read().at(0), 0);
    for (const Mode mode : {other, most}) step.run(mode, 3);
    EXPECT_EQ(step.count.read().at(0), 6);
    EXPECT_EQ(step.program.counters().fallbacks, 0u);
  }
}

// Where nothing is to be split, split_sink launches what sink does. Which ranks this holds for, the others do not know.
TEST_F(NcclModes, ARankAloneHasSomethingToSplit) {
  for (const bool begins_split : {true, false}) {
    Step step(world_of_nccl(), me() == bad());
    for (const bool splits : {begins_split, !begins_split, begins_split}) step.run(splits ? split_sink : sink, 3);
    EXPECT_EQ(step.count.read().at(0), 9);
    EXPECT_EQ(step.program.counters().fallbacks, 0u);
    step.program.run(split_sink, {.steps = 4});
    step.program.run(sink, {.steps = 4});
    step.program.sync();
    EXPECT_EQ(step.count.read().at(0), 17);
  }
}

// The body of a branch is a collective on most ranks, and has ops beside it on one.
TEST_F(NcclModes, ARankAloneHasMoreInABranch) {
  Graph g;
  const Value x = g.input("x", f32, {2});
  const Value condition = greater(all_reduce(sum(x), world_of_nccl()), 0.0);
  const auto exchanged = [&] {
    const Value all = all_reduce(x, world_of_nccl());
    return me() == bad() ? add(all, 1.0) : all;
  };
  g.output("y", if_(condition, exchanged, [&] { return x; }));
  Program program = compile(g, {.target = cuda(0)});
  program.write(x, Tensor::full(f32, {2}, 1.0));
  for (const Mode mode : kAllModes) {
    program.run(mode, {.steps = 2});
    EXPECT_EQ(program.output("y").at(1), ranks() + (me() == bad() ? 1 : 0)) << to_string(mode);
  }
}

void say(const Comm& comm, const std::string& text) {
  std::cout << "rank " + std::to_string(comm.rank()) + ": " + text + "\n" << std::flush;
}

// Run alone, because no rank can go on: see waits.py. Rank 1 is in another mode than before.
TEST(OtherModeByNccl, DISABLED_EveryRankEndsTheWait) {
  name_nccl_standin();
  const Comm comm = nccl_world({.patience_s = 2});
  Step step(comm, false);
  step.run(sink, 2);
  say(comm, problem_of([&] { step.run(comm.rank() == 1 ? interactive_serial : sink); }));
}

// The same for a rank that alone has written another shape.
TEST(OtherShapeByNccl, DISABLED_EveryRankEndsTheWait) {
  name_nccl_standin();
  const Comm comm = nccl_world({.patience_s = 2});
  Graph g;
  const Value x = g.input("x", f32, {open(4)});
  g.output("y", all_reduce(sum(x), comm));
  Program program = compile(g, {.target = cuda(0)});
  const auto run = [&](std::int64_t size) {
    program.write(x, Tensor::full(f32, {size}, 1.0));
    program.run(sink);
    program.sync();
  };
  for (int i = 0; i < 2; ++i) run(4);
  say(comm, problem_of([&] { run(comm.rank() == 1 ? 3 : 4); }));
}

}  // namespace nccl_modes_test
}  // namespace graphsink::testing
#endif
