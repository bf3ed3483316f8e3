// Work that the host drives runs beside the rest of the launch before it: loops and branches, and in split_sink also
// ops on the host.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "api/plan_of.h"
#include "base/at.h"
#include "graphsink/cuda.h"
#include "passes/passes.h"
#include "program_fixture.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

namespace graphsink::cuda_beside_test {
namespace {

using testing::cpu_plus_one;
using testing::kModes;

// The order in which the two ops of a step below ran.
struct Calls {
  std::atomic<int> next = 0, of_loop = -1, of_rest = -1;
};
Calls calls;

void loop_body(const CpuArgs& a) {
  testing::plus_one(a);
  int expected = -1;
  calls.of_loop.compare_exchange_strong(expected, calls.next++);
}
void rest_body(const CpuArgs& a) {
  testing::plus_one(a);
  calls.of_rest = calls.next++;
}
const OpDef in_loop{.name = "in_loop", .infer = testing::infer_like_first, .bodies = {loop_body}};
const OpDef in_rest{.name = "in_rest", .infer = testing::infer_like_first, .bodies = {rest_body}};

// y is x / 2, increased by a loop on the host until its sum is 20. z does not depend on the loop. The output is the sum
// of both.
struct Beside {
  Graph g;
  Value x = g.input("x", f32, {2});
  Beside() {
    Value z = tanh(x * 0.25) + 1.0;
    z = exp(emit(in_rest, {z})[0] * 0.5, on_device);
    auto [y] = while_(
        {x * 0.5}, [](Value s) { return sum(s) < 20.0; }, [](Value s) { return emit(in_loop, {s})[0] * 1.5; });
    g.output("y", y);
    g.output("z", z);
    g.output("sum", y + z);
  }
};

class CudaBeside : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaBeside, TheLaunchBeforeIsDividedBehindWhatTheLoopNeeds) {
  Plan plan = plan_of(compile(Beside().g, {.target = cuda(0), .tuning = {.fuse = false}}));
  ASSERT_EQ(plan.islands.size(), 4u) << plan.explain();
  const Island &before = plan.islands[0], &rest = plan.islands[1], &loop = plan.islands[2], &last = plan.islands[3];
  EXPECT_TRUE(before.sunk && rest.sunk && !loop.sunk && last.sunk);
  EXPECT_EQ(before.after, std::vector<int>());
  EXPECT_EQ(rest.after, std::vector<int>({0}));
  EXPECT_EQ(loop.after, std::vector<int>({0}));
  EXPECT_EQ(last.after, std::vector<int>({0, 1, 2}));
  EXPECT_TRUE(loop.beside && !rest.beside && !last.beside);
  auto ops = [&](const Island& island) {
    std::set<std::string_view> names;
    for (const Task& task : plan.tasks_of(island))
      if (task.node >= 0) names.insert(plan.nodes[at(task.node)].op->name);
    return names;
  };
  std::set<std::string_view> in_first = ops(before), in_rest = ops(rest);
  EXPECT_FALSE(in_first.contains("tanh") || in_first.contains("in_rest") || in_first.contains("exp"));
  EXPECT_TRUE(in_rest.contains("tanh") && in_rest.contains("in_rest") && in_rest.contains("exp"));
  int stream = plan.tasks[at(loop.tasks[0])].stream;
  for (int id : plan.sequences[0].tasks) {
    bool is_in_loop = std::find(loop.tasks.begin(), loop.tasks.end(), id) != loop.tasks.end();
    EXPECT_EQ(plan.tasks[at(id)].stream == stream, is_in_loop) << "task " << id;
  }
  for (const char* text :
       {"  island 1: one launch, after 0\n", "  island 2: driven by the host, beside the islands before it, after 0\n"})
    EXPECT_NE(plan.explain().find(text), std::string::npos) << plan.explain();
}

TEST_F(CudaBeside, NothingIsDividedWhereTheLoopNeedsEverything) {
  Graph g;
  Value x = g.input("x", f32, {2});
  auto [y] = while_(
      {tanh(x * 0.5)}, [](Value s) { return sum(s) < 20.0; }, [](Value s) { return emit(cpu_plus_one, {s})[0]; });
  g.output("y", y);
  Plan plan = plan_of(compile(g, {.target = cuda(0)}));
  ASSERT_EQ(plan.islands.size(), 3u);
  EXPECT_FALSE(plan.islands[1].beside);
}

TEST_F(CudaBeside, AStepHasTheSameBitsAndLaunches) {
  std::vector<std::array<double, 3>> seen;
  for (Mode mode : kModes) {
    Beside model;
    Program program = compile(model.g, {.target = cuda(0)});
    unsigned launches = 0;  // of steps that are not the first
    for (int run = 0; run < 6; ++run) {
      const std::array<float, 2> x{1.0f + static_cast<float>(run % 3), 2.0f};
      program.write(model.x, std::vector<float>(x.begin(), x.end()));
      program.run(mode, {.steps = run % 2 + 1});
      unsigned iterations = 0;
      for (float a = x[0] / 2, b = x[1] / 2; a + b < 20; ++iterations) a = (a + 1) * 1.5f, b = (b + 1) * 1.5f;
      if (run > 0) launches += static_cast<unsigned>(run % 2 + 1) * (3 + iterations);
    }
    EXPECT_EQ(program.counters().fallbacks, 0u);
    if (mode == sink) {
      EXPECT_EQ(program.counters().graph_launches, launches) << "the first of 9 steps is issued op by op";
    }
    seen.push_back({program.output("y").at(0), program.output("z").at(1), program.output("sum").at(1)});
  }
  for (const auto& values : seen) EXPECT_EQ(values, seen[0]);
}

// A graph with an op on the host that depends on one of two chains, and another that depends on both. A group of fused
// ops would be both chains, so that the first op would depend on all.
struct HostOps {
  Graph g;
  Value x = g.feed("x", f32, {64});
  Variable total{"total", Tensor(f32, {64})};

  HostOps() {
    Value early = emit(testing::cpu_refuse_negative, {x * 0.5})[0];
    Value other = tanh(exp(tanh(x) * 0.25));
    Value late = emit(cpu_plus_one, {early + other})[0];
    assign(total, g.value(total) + late);
    g.output("late", late);
  }
};

TEST_F(CudaBeside, SplitSinkLaunchesWhatIsBetweenOpsOnTheHost) {
  HostOps ops;
  Program program = compile(ops.g, {.target = cuda(0), .default_placement = on_device, .tuning = {.fuse = false}});
  const Plan& plan = plan_of(program);
  EXPECT_EQ(plan.islands.size(), 1u);
  EXPECT_EQ(plan.islands[0].tasks, plan.sequences[0].tasks);
  const std::vector<Island>& split = plan.split_islands;
  ASSERT_EQ(split.size(), 6u) << program.explain();
  std::vector<int> tasks;
  for (std::size_t i = 0; i < split.size(); ++i) {
    EXPECT_EQ(split[i].sunk, i != 2 && i != 4) << i;
    EXPECT_EQ(split[i].beside, i == 2) << i << ": the second op waits for everything";
    tasks.insert(tasks.end(), split[i].tasks.begin(), split[i].tasks.end());
  }
  EXPECT_EQ(tasks, plan.sequences[0].tasks);
  EXPECT_EQ(split[2].after, std::vector<int>({0}));
  EXPECT_NE(program.explain().find("sinks whole: 1 launch per step, 4 in split-sink"), std::string::npos)
      << program.explain();
}

TEST_F(CudaBeside, SplitSinkHasTheSameBitsInTheSameMemory) {
  std::vector<Tensor> seen;
  for (Mode mode : {interactive, sink, split_sink}) {
    HostOps ops;
    Program program = compile(ops.g, {.target = cuda(0), .default_placement = on_device, .tuning = {.fuse = false}});
    program.write(ops.x, Tensor::uniform({5, 64}, 3));
    program.run(mode, {.steps = 5});
    program.sync();
    EXPECT_EQ(program.counters().graph_launches, mode == split_sink ? 16u : mode == sink ? 4u : 0u);
    EXPECT_EQ(program.counters().captures, mode == split_sink ? 4u : mode == sink ? 1u : 0u);
    EXPECT_EQ(program.counters().fallbacks, 0u);
    seen.push_back(ops.total.read());
    seen.push_back(program.output("late"));
  }
  for (std::size_t i = 0; i < seen.size(); ++i)
    EXPECT_EQ(std::memcmp(seen[i].data(), seen[i % 2].data(), seen[i].bytes()), 0) << i;
}

// An op of the device that, once it is told to, waits until an op on the host has begun, for at most 10 s.
struct Meeting {
  std::atomic<bool> is_awaited = false, has_begun = false, is_missed = false;
  std::atomic<std::thread::id> thread;  // the thread of the op on the host
};
Meeting meeting;

void await(void*) {
  for (int i = 0; meeting.is_awaited && !meeting.has_begun; ++i) {
    if (i == 10'000) meeting.is_missed = true;
    if (i == 10'000) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
void issue_waiting(CudaArgs& a) {
  check_cuda(cudaLaunchHostFunc(a.stream(), await, nullptr), "cudaLaunchHostFunc", a);
  check_cuda(cudaMemcpyAsync(a.out<void>(0), a.in<void>(0), a.in_type(0).bytes(), cudaMemcpyDefault, a.stream()),
             "cudaMemcpyAsync", a);
}
void begin_on_host(const CpuArgs& a) {
  meeting.thread = std::this_thread::get_id();
  meeting.has_begun = true;
  testing::plus_one(a);
}
const OpDef waiting{.name = "waiting", .infer = testing::infer_like_first, .bodies = {issue_waiting}};
const OpDef begins{.name = "begins", .infer = testing::infer_like_first, .bodies = {begin_on_host}};

TEST_F(CudaBeside, AnOpOnTheHostRunsInTheCallersThreadBesideTheLaunchBefore) {
  Graph g;
  Value x = g.input("x", f32, {2});
  g.output("y", emit(begins, {x * 0.5})[0] + emit(waiting, {x})[0]);
  Program program = compile(g, {.target = cuda(0), .default_placement = on_device, .tuning = {.fuse = false}});
  program.write(x, std::vector<float>{2, 4});
  program.run(split_sink);
  EXPECT_EQ(program.output("y").at(1), 7);
  meeting.has_begun = false;
  meeting.is_awaited = true;
  program.run(split_sink);
  program.sync();
  meeting.is_awaited = false;
  EXPECT_FALSE(meeting.is_missed) << "it ran after the launch\n" << program.explain();
  EXPECT_EQ(meeting.thread.load(), std::this_thread::get_id());
  EXPECT_EQ(program.output("y").at(1), 7);
  EXPECT_EQ(program.counters().graph_launches, 3u);
}

TEST_F(CudaBeside, AnOpBetweenLaunchesThatThrowsCommitsNothing) {
  HostOps ops;
  Program program = compile(ops.g, {.target = cuda(0), .default_placement = on_device, .tuning = {.fuse = false}});
  auto run = [&](float first) {
    program.write(ops.x, Tensor::full(f32, {1, 64}, first));
    program.run(split_sink);
    program.sync();
    return ops.total.read().at(0);
  };
  (void)run(1);
  double before = run(1);
  EXPECT_THROW(run(-1), Error);
  EXPECT_EQ(ops.total.read().at(0), before);
  EXPECT_GT(run(1), before);
}

TEST_F(CudaBeside, WithoutOpsOnTheHostSplitSinkIsSink) {
  Graph g;
  Value x = g.feed("x", f32, {2});
  Variable total("total", Tensor({0.0f, 0.0f}));
  assign(total, g.value(total) + x);
  Program program = compile(g, {.target = cuda(0)});
  EXPECT_TRUE(plan_of(program).split_islands.empty());
  program.write(x, Tensor::full(f32, {9, 2}, 1));
  program.run(split_sink, {.steps = 9});
  program.run(sink, {.steps = 9});
  program.sync();
  EXPECT_EQ(program.counters().graph_launches, 2u) << "8 and 9 steps each";
  EXPECT_EQ(program.counters().captures, 2u);
  EXPECT_EQ(total.read().at(0), 18);
}

#ifdef GRAPHSINK_EMULATED
// The software device starts any work that is ready, in an order drawn from its seed.
TEST_F(CudaBeside, TheLoopIsUnorderedWithTheRest) {
  int loop_first = 0, rest_first = 0;
  for (unsigned seed = 0; seed < 16; ++seed) {
    emu::set_seed(seed);
    Beside model;
    Program program = compile(model.g, {.target = cuda(0)});
    program.write(model.x, std::vector<float>{1, 2});
    for (int step = 0; step < 3; ++step) {
      program.sync();
      calls.next = 0;
      calls.of_loop = calls.of_rest = -1;
      program.run(sink);
    }
    program.sync();
    (calls.of_loop < calls.of_rest ? loop_first : rest_first) += 1;
  }
  EXPECT_GT(loop_first, 0);
  EXPECT_GT(rest_first, 0);
}
#endif

}  // namespace
}  // namespace graphsink::cuda_beside_test
