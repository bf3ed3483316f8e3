// What is particular to ranks whose values NCCL moves, with the stand-in for it on the software CUDA device.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "rank_world.h"
#include "ranks/nccl_api.h"
#include "ranks/nccl_comm.h"
#include "ranks/rank_group.h"
#include "test_ops.h"

#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

namespace graphsink::testing {
namespace nccl_test {

TEST(NcclLibrary, SaysWhereItWasLookedFor) {
  std::string problem;
  (void)NcclApi::open("libno_such_nccl.so.2", problem);
  EXPECT_EQ(problem, "libno_such_nccl.so.2 is not found on the library path");
  (void)NcclApi::open("/no/such/folder/libnccl.so.2", problem);
  EXPECT_TRUE(has(problem, "/no/such/folder/libnccl.so.2")) << problem;
  (void)NcclApi::open("libm.so.6", problem);
  EXPECT_EQ(problem, "libm.so.6 has no function ncclGetVersion");
}

#ifdef GRAPHSINK_EMULATED

int me() { return world_of_nccl().rank(); }
int ranks() { return world_of_nccl().size(); }
int bad() { return ranks() - 1; }

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ranks() == 1) GTEST_SKIP() << "one rank exchanges nothing";
  }
};

// A step of training with a gradient for each of two weights, and a check of an index that fails it.
struct Step {
  explicit Step(const Comm& comm) : program(compile(graph(comm), {.target = cuda(0)})) {}

  Graph graph(const Comm& comm) {
    Graph g;
    index = g.input("index", i32, Shape{1});
    const Value x = g.input("x", f32, Shape{4, 3});
    const Value row = gather(g.constant(Tensor::full(f32, {4, 2}, 1.0)), index);
    const Value loss = add(sum(matmul(tanh(matmul(x, w1)), w2)), mul(sum(row), 0.0));
    apply(SgdOptions{.lr = 0.01}, {w1, w2}, average(grad(loss, {w1, w2}), comm, {.bucket_bytes = 1}));
    g.record("loss", all_reduce(loss, comm));
    g.assign(count, add(g.value(count), 1.0));
    input = x;
    return g;
  }
  void write(int number) {
    Tensor place(i32, {1});
    place.as<std::int32_t>()[0] = number;
    program.write(index, place);
    program.write(input, Tensor::full(f32, {4, 3}, 0.1 * (me() + 1)));
  }

  Variable w1{"w1", Tensor::full(f32, {3, 5}, 0.1)}, w2{"w2", Tensor::full(f32, {5, 1}, 0.2)};
  Variable count{"count", Tensor::scalar(0.0f)};
  Value index, input;
  Program program;
};

TEST_F(Nccl, AStepIsOneLaunchWithItsCollectives) {
  Step step(world_of_nccl());
  step.write(1);
  for (int i = 0; i < 3; ++i) step.program.run(sink);
  step.program.sync();
  const Counters before = step.program.counters();
  for (int i = 0; i < 5; ++i) step.program.run(sink);
  step.program.sync();
  const Counters after = step.program.counters();
  EXPECT_EQ(after.graph_launches - before.graph_launches, 5u);
  EXPECT_EQ(after.host_nodes, before.host_nodes);
  EXPECT_EQ(after.captures, before.captures);
  EXPECT_EQ(after.fallbacks, 0u);
  EXPECT_EQ(step.count.read().at(0), 8);
  const auto captured = step.program.captured(LaunchOf::one_step);
  ASSERT_TRUE(captured.has_value());
  EXPECT_EQ(captured->host_nodes, 0);
  const std::string plan = step.program.explain();
  EXPECT_TRUE(has(plan, "all_reduce")) << plan;
  EXPECT_TRUE(has(plan, "check_ranks")) << plan;
  EXPECT_FALSE(has(plan, "runs on the host")) << plan;
}

// In a step that is sunk, nothing waits for another rank on the host.
TEST_F(Nccl, ASunkStepMakesNoExchangeOnTheHost) {
  const auto exchanges_of_steps = [](const Comm& comm) {
    Step step(comm);
    step.write(1);
    for (int i = 0; i < 3; ++i) step.program.run(sink);
    step.program.sync();
    const std::int64_t before = comm.group()->exchanges();
    for (int i = 0; i < 5; ++i) step.program.run(sink);
    step.program.sync();
    return comm.group()->exchanges() - before;
  };
  EXPECT_EQ(exchanges_of_steps(world_of_nccl()), 0);
  EXPECT_GE(exchanges_of_steps(world_of_host()), 5 * 4) << "two gradients, a loss, and whether the step failed";
}

// When a step is captured, and that `automatic` sinks, must not depend on what a rank measures.
TEST_F(Nccl, WhatIsCapturedDependsOnCountsAlone) {
  Graph g;
  const Value x = g.input("x", f32, {open(4)});
  g.output("y", all_reduce(sum(x), world_of_nccl()));
  Program program = compile(g, {.target = cuda(0)});
  for (const std::int64_t size : {3, 4, 5}) {
    const Counters before = program.counters();
    program.write(x, Tensor::full(f32, {size}, 1.0));
    program.run(automatic);
    const Counters first = program.counters();
    EXPECT_EQ(first.captures - before.captures, 1u) << size;
    EXPECT_EQ(first.graph_launches, before.graph_launches) << size;
    for (int i = 0; i < 20; ++i) program.run(automatic);
    program.run(automatic, {.steps = 20});
    EXPECT_EQ(program.output("y").at(0), static_cast<double>(ranks() * size));
    EXPECT_EQ(program.counters().captures - first.captures, 2u) << size << ": of 16 steps and of 4";
    EXPECT_EQ(program.counters().graph_launches - first.graph_launches, 22u) << size;
  }
}

TEST_F(Nccl, IsRefusedBesideWorkOnAnotherGpu) {
  emu::set_device_count(2);
  const Variable far("far", Tensor::full(f32, {4}, 1.0), on_device(1));
  Graph g;
  g.assign(far, all_reduce(g.value(far) * 2.0, world_of_nccl()));
  try {
    (void)compile(g, {.target = cuda(0), .further_devices = {cuda(1)}});
    ADD_FAILURE() << "expected a refusal";
  } catch (const Error& e) {
    EXPECT_EQ(e.op(), "all_reduce");
    EXPECT_TRUE(has(e.problem(), "work on cuda:1 beside cuda:0")) << e.what();
    EXPECT_TRUE(has(e.remedy(), "give each rank one GPU")) << e.what();
  }
  emu::set_device_count(1);
}

// The rank with the least room decides: one that had dropped more than the others would capture again alone.
TEST_F(Nccl, AllRanksDropTheSameSetsOfShapes) {
  Graph g;
  const Value x = g.input("x", f32, {open(8)});
  g.output("y", all_reduce(sum(x), world_of_nccl()));
  const std::size_t room = me() == bad() ? 2 : 100;
  Program program = compile(g, {.target = cuda(0), .limits = {.shape_cache_shapes = room}});
  for (const std::int64_t size : {3, 4, 5, 3, 5, 4}) {
    program.write(x, Tensor::full(f32, {size}, 1.0));
    for (int i = 0; i < 2; ++i) program.run(sink);
    EXPECT_EQ(program.output("y").at(0), static_cast<double>(ranks() * size));
  }
  EXPECT_EQ(program.counters().cached_shapes, 2u);
  EXPECT_EQ(program.counters().evicted_shapes, 3u);
}

// Steps that are not captured cause no vote.
TEST_F(Nccl, AllRanksKeepToTheLeastLimitOfShapesBetweenCaptures) {
  Graph g;
  const Value x = g.input("x", f32, {open(8)});
  g.output("y", all_reduce(sum(x), world_of_nccl()));
  const std::size_t room = me() == bad() ? 2 : 100;
  Program program = compile(g, {.target = cuda(0), .limits = {.shape_cache_shapes = room}});
  program.write(x, Tensor::full(f32, {3}, 1.0));
  for (int i = 0; i < 2; ++i) program.run(sink);
  for (const std::int64_t size : {4, 5, 6}) {
    program.write(x, Tensor::full(f32, {size}, 1.0));
    program.run(interactive_serial);
    EXPECT_EQ(program.output("y").at(0), static_cast<double>(ranks() * size));
  }
  EXPECT_EQ(program.counters().cached_shapes, 2u);
}

TEST_F(Nccl, ACaptureThatFailsOnOneRankCountsOnNone) {
  Step step(world_of_nccl());
  step.write(1);
  if (me() == bad()) emu::fail("cudaStreamEndCapture", 1, cudaErrorStreamCaptureInvalidated, true);
  for (int i = 0; i < 2; ++i) step.program.run(sink);  // captures are tried behind the first step, and in the second
  emu::clear_faults();
  for (int i = 0; i < 2; ++i) step.program.run(sink);
  step.program.sync();
  EXPECT_EQ(step.count.read().at(0), 4);
  EXPECT_EQ(step.program.counters().fallbacks, 1u);
  EXPECT_EQ(step.program.counters().graph_launches, 2u);
}

// Ranks run ahead of a failure, each as fast as it can, and learn of it together.
TEST_F(Nccl, NothingBehindAFailedStepIsCommittedHoweverFastARankIs) {
  for (const Mode mode : kAllModes) {
    Step step(world_of_nccl());
    step.write(1);
    step.program.run(mode);
    step.program.sync();
    if (me() == 0) setenv("GS_NCCL_SLOW_US", "500", 1);
    for (int i = 0; i < 6; ++i) {
      step.write(me() == bad() && i == 2 ? 9 : 1);
      step.program.run(mode);
    }
    const std::string problem = problem_of([&] { step.program.sync(); });
    unsetenv("GS_NCCL_SLOW_US");
    EXPECT_EQ(step.count.read().at(0), 3) << to_string(mode);
    if (me() == bad()) {
      EXPECT_TRUE(has(problem, "gather: index 9 lies outside")) << problem;
    } else {
      EXPECT_TRUE(has(problem, "the step failed on rank " + std::to_string(bad()) + ": index 9 lies outside the axis"))
          << problem;
    }
    EXPECT_TRUE(has(problem, "in step 3")) << problem;
    step.write(1);
    step.program.run(mode);
    step.program.sync();
    EXPECT_EQ(step.count.read().at(0), 4) << to_string(mode);
  }
}

// A loop whose number of iterations is not known is driven by the host; its collectives stay on the device.
TEST_F(Nccl, LoopsAreDrivenByTheHost) {
  Graph g;
  const Value x = g.input("x", f32, Shape{});
  const Values y = while_(
      Values{x}, [](const Values& state) { return less(state[0], 1000.0); },
      [](const Values& state) { return Values{all_reduce(state[0], world_of_nccl())}; });
  g.output("y", y[0]);
  Program program = compile(g, {.target = cuda(0)});
  program.write(x, Tensor::scalar(static_cast<float>(me() + 1)));
  double expected = ranks() * (ranks() + 1) / 2;
  while (expected < 1000) expected *= ranks();
  for (const Mode mode : kAllModes) {
    program.run(mode);
    EXPECT_EQ(program.output("y").at(0), expected) << to_string(mode);
  }
  EXPECT_TRUE(has(program.explain(), "by a library that conditional nodes may not hold")) << program.explain();
}

// With a collective that crosses the host, the ranks agree on the host.
TEST_F(Nccl, AStepDoesNotExchangeByNcclAndByMpi) {
  Graph g;
  const Value x = g.input("x", f32, Shape{});
  g.output("y", all_reduce(all_reduce(x, world_of_nccl()), world_of_host()));
  if (ranks() > 1) {
    EXPECT_THROW(compile(g, {.target = cuda(0)}), Error);
  }
}

TEST_F(Nccl, AnEagerExchangesToo) {
  Eager eager(cuda(0));
  const Value sum = all_reduce(eager.tensor({1.0 * me(), 2.0}), world_of_nccl());
  EXPECT_EQ(Eager::read(sum).at(0), ranks() * (ranks() - 1) / 2);
  EXPECT_EQ(Eager::read(sum).at(1), 2 * ranks());
}

TEST_F(Nccl, ProgramsOnTheCpuExchangeByMpi) {
  Graph g;
  const Value x = g.input("x", f32, Shape{});
  g.output("y", all_reduce(x, world_of_nccl()));
  Program program = compile(g, {.target = cpu()});
  program.write(x, Tensor::scalar(1.0f));
  program.run(sink);
  EXPECT_EQ(program.output("y").at(0), ranks());
}

// More than the stand-in shows at once, so that parts meet the ends of it.
TEST_F(Nccl, ValuesOfManyParts) {
  Graph g;
  const std::int64_t rows = 50021;
  const Value x = g.input("x", f64, Shape{ranks() * rows, 3});
  g.output("sum", all_reduce(x, world_of_nccl()));
  g.output("part", reduce_scatter(x, world_of_nccl()));
  g.output("whole", all_gather(x[Index{0, rows}], world_of_nccl()));
  g.output("turned", all_to_all(x, world_of_nccl()));
  Program program = compile(g, {.target = cuda(0)});
  Tensor mine(f64, {ranks() * rows, 3});
  double next = 1000000.0 * me();
  for (double& each : mine.as<double>()) each = next++;
  program.write(x, mine);
  program.run(sink);
  program.run(sink);
  const double others = 1000000.0 * ranks() * (ranks() - 1) / 2;
  const Tensor sums = program.output("sum"), part = program.output("part"), whole = program.output("whole"),
               turned = program.output("turned");
  for (std::int64_t i = 0; i < ranks() * rows * 3; i += 997) {
    const auto source = static_cast<double>(i / (rows * 3)), rest = static_cast<double>(i % (rows * 3));
    ASSERT_EQ(sums.at(i), others + static_cast<double>(ranks() * i)) << i;
    ASSERT_EQ(whole.at(i), 1000000.0 * source + rest) << i;
    ASSERT_EQ(turned.at(i), 1000000.0 * source + static_cast<double>(me() * rows * 3) + rest) << i;
    if (i < rows * 3) {
      ASSERT_EQ(part.at(i), others + static_cast<double>(ranks() * (me() * rows * 3 + i))) << i;
    }
  }
}

TEST_F(Nccl, TheBodiesOfConditionalNodesHoldNone) {
  const NcclComm& comm = *world_of_nccl().group()->nccl();
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr, same = nullptr;
  cudaGraphConditionalHandle handle{};
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaGraphCreate(&graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0), cudaSuccess);
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = cudaGraphCondTypeIf;
  params.conditional.size = 1;
  cudaGraphNode_t node = nullptr;
  ASSERT_EQ(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCaptureToGraph(stream, params.conditional.phGraph_out[0], nullptr, nullptr, 0,
                                          cudaStreamCaptureModeThreadLocal),
            cudaSuccess);
  EXPECT_EQ(comm.api().all_gather(&comm, &stream, 1, NcclType::u8, comm.handle(), stream), NcclResult::invalid_usage);
  EXPECT_EQ(cudaStreamEndCapture(stream, &same), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(Nccl, TheProgramIsCompiledForTheDeviceOfTheRank) {
  EXPECT_EQ(world_of_nccl().device(), 0);
  EXPECT_EQ(world_of_host().device(), -1);
  emu::set_device_count(2);
  Graph g;
  const Value x = g.input("x", f32, Shape{});
  g.output("y", all_reduce(x, world_of_nccl()));
  const std::string problem = problem_of([&] { compile(g, {.target = cuda(1)}).bind(); });
  emu::set_device_count(1);
  EXPECT_EQ(problem, "all_reduce: the program runs on device 1, and the Comm was made for device 0");
}

TEST_F(Nccl, NamesACallThatFails) {
  Graph g;
  const Value x = g.input("x", f32, Shape{});
  g.output("y", all_reduce(x, world_of_nccl()));
  Program program = compile(g, {.target = cuda(0)});
  program.write(x, Tensor::scalar(1.0f));
  setenv("GS_NCCL_FAIL", "ncclAllReduce", 1);
  const std::string problem = problem_of([&] { program.run(sink); });
  unsetenv("GS_NCCL_FAIL");
  EXPECT_EQ(problem, "all_reduce: ncclAllReduce returned unhandled system error (asked for by GS_NCCL_FAIL)");
  program.run(sink);
  EXPECT_EQ(program.output("y").at(0), ranks());
}

TEST_F(Nccl, StartsOnAllRanksOrOnNone) {
  if (me() == bad()) setenv("GS_NCCL_FAIL", "ncclGetUniqueId", 1);
  const std::string no_device =
      problem_of([] { (void)nccl_world({.patience_s = 120, .device = me() == bad() ? 99 : -1}); });
  unsetenv("GS_NCCL_FAIL");
  EXPECT_TRUE(has(no_device, "rank " + std::to_string(bad()) + " cannot use NCCL: NcclOptions::device is 99"))
      << no_device;
  if (me() == 0) setenv("GS_NCCL_FAIL", "ncclGetUniqueId", 1);
  const std::string no_id = problem_of([] { (void)nccl_world({.patience_s = 120}); });
  unsetenv("GS_NCCL_FAIL");
  EXPECT_TRUE(has(no_id, "rank 0 cannot use NCCL: ncclGetUniqueId returned unhandled system error")) << no_id;
}

TEST_F(Nccl, OlderLibrariesHaveFewerOptions) {
  std::string problem;
  setenv("GS_NCCL_VERSION", "22703", 1);
  (void)NcclApi::open(std::getenv("GRAPHSINK_NCCL"), problem);
  EXPECT_TRUE(has(problem, " is NCCL 2.27.3, and the oldest one that is known to do is 2.28.0")) << problem;
  setenv("GS_NCCL_VERSION", "22809", 1);
  const NcclApi nccl = NcclApi::open(std::getenv("GRAPHSINK_NCCL"), problem);
  EXPECT_EQ(problem, "");
  NcclId id;
  if (me() == 0) problem = nccl.get_unique_id(&id) == NcclResult::success ? "" : "no id";
  EXPECT_EQ(problem, "");
  world_of_nccl().group()->broadcast_parts(id.bytes, sizeof id.bytes, 0, {"test", Where()});
  EXPECT_EQ(problem_of([&] { const NcclComm comm(nccl, 0, ranks(), me(), id, Where()); }), "");
  unsetenv("GS_NCCL_VERSION");
}

TEST_F(Nccl, LeavesNoFilesBehind) {
  world_of_nccl().barrier();
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    EXPECT_FALSE(has(entry.path().filename().string(), "gs_nccl_" + std::to_string(getpid()))) << entry.path();
  world_of_nccl().barrier();
}

// Run alone, with a rank that never comes: see waits.py.
TEST(MissingByNccl, DISABLED_RankEndsTheWait) {
  name_nccl_standin();
  setenv("GS_NCCL_GARBAGE", "1", 1);
  const Comm comm = nccl_world({.patience_s = 2});
  Graph g;
  const Value x = g.input("x", f32, Shape{2});
  g.output("y", all_reduce(x, comm));
  const Variable count("count", Tensor::scalar(0.0f));
  g.assign(count, add(g.value(count), 1.0));
  Program program = compile(g, {.target = cuda(0)});
  program.write(x, Tensor::full(f32, {2}, 1.0));
  program.run(sink);
  program.run(sink);
  program.sync();
  if (comm.rank() == 0) return;
  for (int i = 0; i < 2; ++i) {
    try {
      program.run(sink);
      program.sync();
    } catch (const Error& e) {
      std::cout << "seen " << i << ": " << e.what() << std::endl;
    }
  }
  std::cout << "committed " << program.steps() << std::endl;
}

// The same for calls that wait in other ways.
struct MissingStep {
  explicit MissingStep(const Comm& comm) : program(compile(graph(comm), {.target = cuda(0)})) {
    for (int i = 0; i < 2; ++i) program.run(sink);
    program.sync();
  }
  Graph graph(const Comm& comm) {
    Graph g;
    g.output("y", all_reduce(g.value(count), comm));
    g.assign(count, add(g.value(count), 1.0));
    return g;
  }
  Variable count{"count", Tensor::scalar(0.0f)};
  Program program;
};

TEST(PolledByNccl, DISABLED_RankEndsTheWait) {
  name_nccl_standin();
  const Comm comm = nccl_world({.patience_s = 2});
  MissingStep step(comm);
  if (comm.rank() == 0) return;
  const std::string problem = problem_of([&] {
    step.program.run(sink);
    while (!step.program.poll()) usleep(1000);
  });
  std::cout << "polled: " << problem << std::endl;
}

TEST(ReadByNccl, DISABLED_RankEndsTheWait) {
  name_nccl_standin();
  const Comm comm = nccl_world({.patience_s = 2});
  MissingStep step(comm);
  if (comm.rank() == 0) return;
  const std::string problem = problem_of([&] {
    step.program.run(sink);
    (void)step.count.read();
  });
  std::cout << "read: " << problem << std::endl;
  std::cout << "saved " << step.count.read().at(0) << std::endl;  // told once, then it can be saved
}

// A step that also exchanges values in a part of the ranks, in a CUDA graph of the caller's.
struct CallersStep {
  CallersStep(const Comm& all, const Comm& part) : program(compile(graph(all, part), {.target = cuda(0)})) {
    program.run(sink);
    program.sync();
    EXPECT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    cudaGraph_t captured = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    program.enqueue(stream);
    EXPECT_EQ(cudaStreamEndCapture(stream, &captured), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&exec, captured, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(captured), cudaSuccess);
  }
  Graph graph(const Comm& all, const Comm& part) {
    Graph g;
    g.assign(total, all_reduce(all_reduce(g.constant(Tensor::scalar(1.0f)), part), all));
    g.assign(count, add(g.value(count), 1.0));
    return g;
  }
  // The Error of the step.
  std::string launch() {
    EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return problem_of([&] { program.sync(); });
  }
  Variable total{"total", Tensor::scalar(0.0f)}, count{"count", Tensor::scalar(0.0f)};
  Program program;
  cudaStream_t stream = nullptr;
  cudaGraphExec_t exec = nullptr;
};

// Two of three ranks give up a wait of another program in their group. What the group's exchanges leave from then on is
// committed on no rank, though all ranks can still agree.
TEST(PartGivenUpByNccl, DISABLED_NoRankCommits) {
  name_nccl_standin();
  setenv("GS_NCCL_GARBAGE", "1", 1);
  const Comm all = nccl_world({.patience_s = 5}), part = all.split(all.rank() / 2);
  CallersStep step(all, part);
  EXPECT_EQ(step.launch(), "");
  if (part.size() > 1) {
    Graph g;
    g.output("y", all_reduce(g.constant(Tensor::scalar(1.0f)), part));
    Program program = compile(g, {.target = cuda(0)});
    setenv("GS_NCCL_STALL", "1", 1);
    const std::string problem = problem_of([&] {
      program.run(sink);
      program.sync();
    });
    EXPECT_TRUE(has(problem, "has waited 5000 ms")) << problem;
    unsetenv("GS_NCCL_STALL");
  }
  const std::string problem = step.launch();
  std::cout << "rank " + std::to_string(all.rank()) + " keeps " + std::to_string(step.count.read().at(0)) + " " +
                   std::to_string(step.total.read().at(0)) + ": " + problem + "\n"
            << std::flush;
}

// Run alone, because no rank can go on.
TEST(StalledByNccl, DISABLED_EveryRankEndsTheWait) {
  name_nccl_standin();
  const Comm comm = nccl_world({.patience_s = 3});
  Graph g;
  const Value x = g.input("x", f32, Shape{2});
  g.output("y", all_gather(all_reduce(x, comm), comm));
  Program program = compile(g, {.target = cuda(0)});
  program.write(x, Tensor::full(f32, {2}, 1.0));
  for (int i = 0; i < 3; ++i) program.run(sink);
  program.sync();
  if (comm.rank() == 0) setenv("GS_NCCL_STALL", "1", 1);
  const std::string problem = problem_of([&] {
    program.run(sink, {.steps = 2});
    program.sync();
  });
  std::cout << "rank " + std::to_string(comm.rank()) + ": " + problem + "\n" << std::flush;
  Eager eager(cuda(0));
  const std::string later = problem_of([&] { (void)all_reduce(eager.tensor({1.0}), comm); });
  std::cout << "eager of rank " + std::to_string(comm.rank()) + ": " + later + "\n" << std::flush;
}

#endif

}  // namespace nccl_test
}  // namespace graphsink::testing
