// Programs, Eagers and calls that share a Comm exchange values in the order of the calls.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "program_fixture.h"
#include "rank_world.h"
#include "ranks/rank_turn.h"

namespace graphsink::testing {
namespace turns_test {

std::string problem_in_thread(const std::function<void()>& call) {
  std::string problem;
  std::thread([&] { problem = problem_of(call); }).join();
  return problem;
}

// --- without other ranks

struct CountedUser : RankUser {
  void finish_steps() override { ++waits; }
  int waits = 0;
};

TEST(RankTurn, TheNextOneOfTheThreadWaitsForTheStepsOfTheOneBefore) {
  RankTurn turn;
  const auto a = std::make_shared<CountedUser>(), b = std::make_shared<CountedUser>();
  turn.take(a, "run", Where());
  turn.take(a, "run", Where());
  EXPECT_EQ(a->waits, 0);
  turn.take(b, "run", Where());
  EXPECT_EQ(a->waits, 1);
  {
    const RankTurn::Call outer(turn, "barrier", Where()), inner(turn, "barrier", Where());
    EXPECT_EQ(b->waits, 1);
  }
  turn.take(a, "run", Where());
  EXPECT_EQ(b->waits, 1);
  turn.leave(*a);
  turn.take(b, "run", Where());
  EXPECT_EQ(a->waits, 1);
}

TEST(RankTurn, AnotherThreadGetsAnErrorUntilTheProgramWasWaitedFor) {
  RankTurn turn;
  const auto a = std::make_shared<CountedUser>(), b = std::make_shared<CountedUser>();
  const auto take = [&] { turn.take(b, "run", Where()); };
  const auto call = [&] { const RankTurn::Call barrier(turn, "barrier", Where()); };
  turn.take(a, "run", Where());
  EXPECT_TRUE(has(problem_in_thread(take), "run: another thread has run a program with this Comm"));
  EXPECT_TRUE(has(problem_in_thread(call), "barrier: another thread has run a program with this Comm"));
  turn.leave(*b);  // it has no turn
  EXPECT_NE(problem_in_thread(take), "");
  turn.leave(*a);
  EXPECT_EQ(problem_in_thread(call), "");
  EXPECT_EQ(problem_in_thread(take), "");
  EXPECT_TRUE(has(problem_of(call), "another thread has run a program"));
  turn.leave(*b);
  {
    const RankTurn::Call barrier(turn, "barrier", Where());
    EXPECT_TRUE(has(problem_in_thread(take), "run: another thread exchanges values in this Comm now"));
  }
  EXPECT_EQ(problem_in_thread(take), "");
  EXPECT_EQ(a->waits + b->waits, 0);
}

TEST(RankTurn, AProgramThatIsGoneHasNone) {
  RankTurn turn;
  turn.take(std::make_shared<CountedUser>(), "run", Where());
  EXPECT_EQ(problem_in_thread([&] { const RankTurn::Call barrier(turn, "barrier", Where()); }), "");
}

// --- between ranks

class Turns : public OnRanks {
 protected:
  // A step adds up `x` over the ranks. On every second rank, the host computes for a while in front of that, or not.
  struct Summing {
    Value x;
    Program program;
    double sum() { return program.output("sum").at(0); }
  };
  Summing summing(double each, bool is_slow) {
    Graph g;
    const Value x = g.input("x", f32, Shape{});
    ExternalOp op{.name = "computes", .outputs = {{f32, {}}}};
    op.cpu = [is_slow = is_slow == (world().rank() % 2 == 0)](const CpuArgs& a) {
      if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      a.out<float>(0)[0] = a.in<float>(0)[0];
    };
    g.output("sum", all_reduce(external_op(op, {x})[0], world()));
    Program program = compile(g);
    program.write(x, Tensor::scalar(static_cast<float>(each)));
    program.run(sink);
    program.sync();
    return {x, std::move(program)};
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, Turns, ::testing::ValuesIn(rank_ways()), rank_way_name);

TEST_P(Turns, StepsOfSeveralProgramsKeepTheOrderOfTheirRuns) {
  Summing a = summing(1, true), b = summing(10, false), c = summing(100, true);
  for (int i = 0; i < 4; ++i) {
    a.program.run(sink, {.steps = 3});
    b.program.run(interactive_serial);
    c.program.run(sink);
    b.program.run(sink, {.steps = 2});
    world().barrier();
    a.program.run(sink);
    Variable w("w", Tensor::scalar(static_cast<float>(world().rank() + 1)));
    broadcast_variables({{w}}, world());
    EXPECT_EQ(w.read().at(0), 1);
    Eager eager(GetParam().device.kind == DeviceKind::cuda && !GetParam().nccl ? cpu() : GetParam().device);
    c.program.run(sink);
    EXPECT_EQ(Eager::read(all_reduce(eager.tensor({1000.0}), world())).at(0), 1000.0 * world().size());
  }
  EXPECT_EQ(a.sum(), world().size());
  EXPECT_EQ(b.sum(), 10.0 * world().size());
  EXPECT_EQ(c.sum(), 100.0 * world().size());
}

// On the last rank the work in front of the first program's exchange takes longer: there the host node of the second
// one could be ready before.
TEST_P(Turns, ProgramsOfAThreadMayHaveACommEach) {
  const Comm other = world().split(0);
  Graph g;
  const Value x = g.input("x", f32, {120, 120}), count = g.input("count", i32, Shape{});
  const auto [y, number] = while_(
      {x, g.constant(Tensor::full(i32, {}, 0))}, [&](const Value&, const Value& i) { return i < count; },
      [&](const Value& y, const Value& i) {
        return std::array{tanh(matmul(y, x)), i + 1.0};
      });
  g.output("sum", all_reduce(sum(y * 0.0) + 1.0, world()));
  Program slow = compile(g);
  slow.write(x, Tensor::full(f32, {120, 120}, 0.5));
  slow.write(count, Tensor::full(i32, {}, world().rank() == world().size() - 1 ? 20 : 1));
  Graph of_quick;
  of_quick.output("sum", all_reduce(of_quick.constant(Tensor::scalar(10.0f)), other));
  Program quick = compile(of_quick);
  for (int i = 0; i < 10; ++i) {
    slow.run();
    quick.run();
  }
  EXPECT_EQ(slow.output("sum").at(0), world().size());
  EXPECT_EQ(quick.output("sum").at(0), 10.0 * world().size());
  world().barrier();
}

// Their bytes meet, as many of both, and nothing of it is committed. `beside`: a group that both use, too.
void expect_failures_of_programs_in_another_order(const Comm* beside) {
  const Variable sum("sum", Tensor::scalar(0.0f));
  Graph of_floats, of_integers;
  const Value total = all_reduce(of_floats.value(sum), world());
  of_floats.assign(sum, add(total, 1.0));
  of_integers.output("y", all_reduce(of_integers.constant(Tensor::full(i32, {}, 1)), world()));
  if (beside != nullptr) {
    for (Graph* g : {&of_floats, &of_integers})
      g->output("beside", all_reduce(g->constant(Tensor::scalar(1.0f)), *beside));
  }
  Program floats = compile(of_floats), integers = compile(of_integers);
  for (Program* program : {&floats, &integers}) {
    program->run();
    program->sync();
  }
  const bool is_other = world().rank() == world().size() - 1;
  for (Program* program : {is_other ? &integers : &floats, is_other ? &floats : &integers}) {
    const std::string problem = problem_of([&] {
      program->run();
      program->sync();
    });
    EXPECT_TRUE(has(problem, "runs another program, or one of other sizes")) << problem;
  }
  EXPECT_EQ(sum.read().at(0), 1.0);
  floats.run();
  EXPECT_EQ(sum.read().at(0), world().size() + 1.0);
  world().barrier();
}

TEST_P(Turns, ProgramsInAnotherOrderOnOneRankFailTheirSteps) {
  if (world().size() == 1) GTEST_SKIP() << "one rank has no others";
  if (GetParam().nccl) GTEST_SKIP() << "where values move between GPUs, programs are not told apart";
  const Comm beside = world().split(0);
  for (const Comm* group : {static_cast<const Comm*>(nullptr), &beside}) {
    SCOPED_TRACE(group != nullptr);
    expect_failures_of_programs_in_another_order(group);
  }
}

// Two trainings whose collectives look alike, as those of a generator and its critic do.
struct Training {
  Variable w;
  Program program;

  Training(const std::string& name, double sign) : w(name, Tensor::full(f32, {2}, 1)), program(of(w, sign)) {}

  static Program of(const Variable& w, double sign) {
    Graph g;
    const Value loss = mul(mean(mul(g.value(w), g.value(w))), sign);
    apply(SgdOptions{.lr = 0.5}, {w}, average(grad(loss, {w}), world()));
    return compile(g);
  }
  std::string problem() {
    return problem_of([&] {
      program.run();
      program.sync();
    });
  }
};

// They differ in what they compute, or in the names of the Variables alone.
TEST_P(Turns, TrainingsInAnotherOrderOnOneRankFailTheirSteps) {
  if (world().size() == 1) GTEST_SKIP() << "one rank has no others";
  if (GetParam().nccl) GTEST_SKIP() << "where values move between GPUs, programs are not told apart";
  for (const double sign : {-1.0, 1.0}) {
    SCOPED_TRACE(sign);
    Training first("first", 1), second("second", sign);
    for (Training* training : {&first, &second}) EXPECT_EQ(training->problem(), "");
    const Tensor of_first = first.w.read(), of_second = second.w.read();
    const bool is_other = world().rank() == world().size() - 1;
    for (Training* training : {is_other ? &second : &first, is_other ? &first : &second}) {
      const std::string problem = training->problem();
      EXPECT_TRUE(has(problem, "runs another program, or one of other sizes")) << problem;
    }
    EXPECT_EQ(first.w.read().at(0), of_first.at(0));
    EXPECT_EQ(second.w.read().at(0), of_second.at(0));
    world().barrier();
  }
}

// A plan is compared by the ranks when steps of another one are under way.
TEST_P(Turns, PlansAreComparedInTheirTurn) {
  if (world().size() == 1) return;
  Summing a = summing(1, true);
  a.program.run(sink, {.steps = 3});
  Graph g;
  const Value x = g.input("x", f32, Shape{7});
  g.output("y", all_gather(all_reduce(x, world()), world()));
  Program other = compile(g);
  other.write(x, Tensor::full(f32, {7}, 1.0));
  other.run(sink);
  a.program.run(sink);
  EXPECT_EQ(other.output("y").at(0), world().size());
  EXPECT_EQ(a.sum(), world().size());
}

TEST_P(Turns, AThreadHasToWaitUntilTheOtherHasSynced) {
  if (world().size() == 1) return;
  Summing a = summing(1, true), b = summing(10, false);
  const auto run = [&] {
    b.program.run(sink);
    b.program.sync();
  };
  a.program.run(sink);
  EXPECT_TRUE(has(problem_in_thread(run), "run: another thread has run a program with this Comm"));
  EXPECT_TRUE(has(problem_in_thread([] { world().barrier(); }), "barrier: another thread has run a program"));
  a.program.sync();
  EXPECT_EQ(problem_in_thread(run), "");
  a.program.run(sink);
  a.program.log_failed_step();
  EXPECT_EQ(problem_in_thread(run), "");
  a.program.run(sink);
  EXPECT_EQ(a.sum(), world().size());
  EXPECT_EQ(problem_in_thread(run), "");
  EXPECT_EQ(b.sum(), 10.0 * world().size());
}

TEST_P(Turns, ThreadsWithACommEachDoNotWaitForEachOther) {
  if (GetParam().device.kind == DeviceKind::cuda) return;  // the software device runs one thing at a time
  const Comm other = world().split(0);
  const auto train = [&](const Comm& comm) {
    Graph g;
    const Value x = g.input("x", f32, Shape{});
    g.output("y", all_reduce(x, comm));
    Program program = compile(g);
    program.write(x, Tensor::scalar(1.0f));
    for (int i = 0; i < 20; ++i) program.run(sink);
    return program.output("y").at(0);
  };
  double there = 0;
  std::thread thread([&] { there = train(other); });
  const double here = train(world());
  thread.join();
  EXPECT_EQ(here, world().size());
  EXPECT_EQ(there, world().size());
}

// --- Eagers on a device of whose values NCCL moves none

TEST(EagerOnCuda, SaysWhyItCannotUseACommOfTheHost) {
  if (world_of_host().size() == 1) return;
  for (const DeviceId& device : devices()) {
    if (device.kind != DeviceKind::cuda) continue;
    Eager eager(device);
    const std::string problem = problem_of([&] { (void)all_reduce(eager.tensor({1.0}), world_of_host()); });
    EXPECT_EQ(problem, "all_reduce: has no body for cuda:0, because the values of its Comm cross the host");
  }
}

}  // namespace turns_test
}  // namespace graphsink::testing
