// Steps that become a part of a CUDA graph of the caller's.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/plan_of.h"
#include "cuda_ops.h"
#include "graphsink/capture.h"
#include "graphsink/cuda.h"
#include "guest_kernels.h"
#include "messages.h"
#include "program_fixture.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

namespace graphsink::cuda_enqueue_test {
namespace {

using testing::breaks_op;
using testing::contains;
using testing::message_of;
using testing::waits_op;

std::vector<float> values(const Tensor& tensor) { return {tensor.as<float>().begin(), tensor.as<float>().end()}; }

// The sum of a Value and of three chains that do not depend on each other.
Value plus_branches(Value total, const Value& x) {
  for (int branch = 0; branch < 3; ++branch) {
    Value y = x * (branch + 2.0);
    for (int i = 0; i < 8; ++i) y = tanh(y) + 0.25;
    total = total + y;
  }
  return total;
}

class Enqueue : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device answers";
    ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    ASSERT_EQ(cudaSuccess, cudaMalloc(reinterpret_cast<void**>(&sum_), sizeof(int)));
    ASSERT_EQ(cudaSuccess, cudaMemset(sum_, 0, sizeof(int)));
    ASSERT_EQ(cudaSuccess, cudaDeviceSynchronize());
  }
  void TearDown() override {
    for (cudaGraphExec_t exec : execs_) EXPECT_EQ(cudaSuccess, cudaGraphExecDestroy(exec));
    for (cudaGraph_t graph : graphs_) EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
    if (sum_) cudaFree(sum_);
    if (stream_) cudaStreamDestroy(stream_);
    EXPECT_EQ(cudaSuccess, cudaGetLastError());
  }

  // A step of training: `w` learns the sum of its inputs, and each step records the loss.
  Program trainer() {
    Graph g;
    x_ = g.input("x", f32, {4});
    Variable w("w", Tensor({0.5f, -1.0f, 0.25f, 2.0f}));
    w_ = w;
    Value error = sum(x_ * w) - 3.0;
    Value loss = error * error;
    adamw(loss, {w}, {.lr = 0.1});
    g.record("loss", loss);
    g.output("loss", loss);
    Program p = compile(g, {.target = cuda(0)});
    p.write(x_, std::vector<float>{1, 2, 3, 4});
    return p;
  }

  cudaGraphExec_t capture(const std::function<void()>& enqueue) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    enqueue();
    EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(stream_, &graph));
    graphs_.push_back(graph);
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaSuccess, cudaGraphInstantiate(&exec, graph, 0));
    execs_.push_back(exec);
    return exec;
  }
  void launch(cudaGraphExec_t exec, int times = 1) {
    for (int i = 0; i < times; ++i) ASSERT_EQ(cudaSuccess, cudaGraphLaunch(exec, stream_));
    ASSERT_EQ(cudaSuccess, cudaStreamSynchronize(stream_));
  }
  std::size_t nodes_of(std::size_t graph) {
    std::size_t count = 0;
    EXPECT_EQ(cudaSuccess, cudaGraphGetNodes(graphs_[graph], nullptr, &count));
    return count;
  }
  // Why a step cannot become a part of a capture, which must go on unharmed.
  std::string refusal(Program& p) {
    EXPECT_EQ(cudaSuccess, cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    std::string message = message_of([&] { p.enqueue(stream_); });
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(stream_, &graph));
    std::size_t count = 1;
    EXPECT_EQ(cudaSuccess, cudaGraphGetNodes(graph, nullptr, &count));
    EXPECT_EQ(count, 0u) << "nothing was captured";
    EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
    return message;
  }

  cudaStream_t stream_ = nullptr;
  int* sum_ = nullptr;
  Value x_;
  Variable w_;
  std::vector<cudaGraph_t> graphs_;
  std::vector<cudaGraphExec_t> execs_;
};

TEST_F(Enqueue, AStepInAGraphOfTheCallersTrainsAsRunDoes) {
  Program by_run = trainer();
  Variable other = w_;
  for (int i = 0; i < 12; ++i) by_run.run(interactive_serial);
  Program p = trainer();
  p.enqueue(stream_);
  cudaGraphExec_t exec = capture([&] {
    testing::guest_add(stream_, sum_, 1);
    p.enqueue(stream_);
    testing::guest_add(stream_, sum_, 10);
  });
  EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream_));
  EXPECT_EQ(p.steps(), 1) << "what is captured does not run";
  launch(exec, 11);
  EXPECT_EQ(p.steps(), 12);
  EXPECT_EQ(p.records("loss"), by_run.records("loss"));
  EXPECT_EQ(p.output("loss").at(0), by_run.output("loss").at(0));
  EXPECT_EQ(values(w_.read()), values(other.read()));
  int sum = 0;
  EXPECT_EQ(cudaSuccess, cudaMemcpy(&sum, sum_, sizeof sum, cudaMemcpyDefault));
  EXPECT_EQ(sum, 11 * 11);
  p.run();
  by_run.run();
  EXPECT_EQ(p.records("loss"), by_run.records("loss")) << "the program goes on from there";
}

TEST_F(Enqueue, OnALiveStreamItIsARun) {
  Program by_run = trainer();
  Program p = trainer();
  for (int i = 0; i < 4; ++i) {
    by_run.run();
    p.enqueue(stream_);
  }
  EXPECT_EQ(p.records("loss"), by_run.records("loss"));
  EXPECT_EQ(p.counters().graph_launches, 3u);
}

// The caller's graph keeps what the step uses, as long as it, what is made of it and its launches exist.
#ifdef GRAPHSINK_EMULATED
class EnqueueOutlives : public Enqueue, public ::testing::WithParamInterface<unsigned> {
 protected:
  void SetUp() override {
    emu::set_seed(GetParam());
    Enqueue::SetUp();
    counter().run();  // what the first program of a process makes for ever
    total_ = Variable();
    before_ = emu::live_objects().total();
  }
  void TearDown() override {
    Enqueue::TearDown();
    emu::set_seed(0);
  }
  // A destroyed program's step, with ops on the host, a loop and random numbers: `total_` grows by what steps compute.
  cudaGraphExec_t capture_and_destroy() {
    Program p = counter();
    p.run();
    p.sync();
    return capture([&] { p.enqueue(stream_); });
  }
  Program counter() {
    Graph g;
    Value x = g.input("x", f32, {4});
    Value zero = g.constant(Tensor::scalar(0));
    auto [u, n] = while_(
        {x, zero}, [](Value s, Value) { return sum(s) < 100.0; },
        [](Value s, Value i) {
          return std::array{s * 2.0, i + 1};
        });
    Variable total("total", Tensor({0.0f, 0.0f, 0.0f, 0.0f}));
    total_ = total;
    Value seen = emit(testing::cpu_plus_one, {u + cast(n, f32) + random_uniform(g, f32, {4})})[0];
    assign(total, g.value(total) + seen);
    Program p = compile(g, {.target = cuda(0)});
    p.write(x, std::vector<float>{1, 2, 3, 4});
    return p;
  }
  void destroy_graphs() {
    for (cudaGraphExec_t exec : execs_) EXPECT_EQ(cudaSuccess, cudaGraphExecDestroy(exec));
    for (cudaGraph_t graph : graphs_) EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
    execs_.clear();
    graphs_.clear();
  }
  // Objects of CUDA that were not there before the program, after a call of the library.
  std::size_t left_over() {
    (void)emu::live_objects();  // waits for what CUDA has to tell
    SinkCache().clear();
    return emu::live_objects().total() - before_;
  }

  std::size_t before_ = 0;
  Variable total_;
};

TEST_P(EnqueueOutlives, TheProgramBeforeTheLaunches) {
  {
    std::vector<float> expected;
    {
      Program by_run = counter();
      for (int i = 0; i < 4; ++i) by_run.run(interactive_serial);
      by_run.sync();
      expected = values(total_.read());
    }
    cudaGraphExec_t exec = capture_and_destroy();
    launch(exec, 3);
    EXPECT_EQ(values(total_.read()), expected);
    EXPECT_GT(left_over(), 0u) << "the graph lives";
    destroy_graphs();
  }
  total_ = Variable();
  EXPECT_EQ(left_over(), 0u);
}

TEST_P(EnqueueOutlives, TheProgramAndTheGraphBeforeTheLaunchEnds) {
  cudaGraphExec_t exec = capture_and_destroy();
  const std::vector<float> before = values(total_.read());
  ASSERT_EQ(cudaSuccess, cudaGraphLaunch(exec, stream_));
  destroy_graphs();
  SinkCache().clear();  // frees nothing that the launch uses
  ASSERT_EQ(cudaSuccess, cudaStreamSynchronize(stream_));
  EXPECT_NE(values(total_.read()), before);
  total_ = Variable();
  EXPECT_EQ(left_over(), 0u);
}

TEST_P(EnqueueOutlives, TheCapture) {
  cudaGraphExec_t exec = nullptr;
  {
    std::optional<Program> p = counter();
    p->run();
    p->sync();
    exec = capture([&] {
      p->enqueue(stream_);
      p.reset();
      testing::guest_add(stream_, sum_, 1);
    });
  }
  launch(exec, 2);
  int sum = 0;
  EXPECT_EQ(cudaSuccess, cudaMemcpy(&sum, sum_, sizeof sum, cudaMemcpyDefault));
  EXPECT_EQ(sum, 2);
  destroy_graphs();
  total_ = Variable();
  EXPECT_EQ(left_over(), 0u);
}

TEST_P(EnqueueOutlives, InASinkCache) {
  {
    SinkCache sinks;
    std::optional<Program> p = counter();
    p->run();
    for (int i = 0; i < 3; ++i) {
      sinks.run(stream_, Key{}, [&](cudaStream_t s) { p->enqueue(s); });
    }
    p.reset();
    const std::vector<float> before = values(total_.read());
    sinks.run(stream_, Key{}, [&](cudaStream_t) { ADD_FAILURE() << "the work is launched"; });
    EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream_));
    EXPECT_NE(values(total_.read()), before);
  }
  total_ = Variable();
  EXPECT_EQ(left_over(), 0u);
}

// To free memory is to wait for the device.
TEST_P(EnqueueOutlives, CallsThatNeverWaitFreeNothing) {
  Program other = trainer();
  other.run();
  other.sync();
  (void)capture_and_destroy();
  total_ = Variable();
  destroy_graphs();
  const std::size_t live = emu::live_objects().total();
  EXPECT_TRUE(other.poll());
  EXPECT_EQ(other.try_records("loss").size(), 1u);
  EXPECT_EQ(emu::live_objects().total(), live);
  other.sync();
  EXPECT_LT(emu::live_objects().total(), live);
}

INSTANTIATE_TEST_SUITE_P(Seeds, EnqueueOutlives, ::testing::Range(0u, 6u));

// Without an owner the graph could not be launched for long, so the capture is refused.
TEST_F(Enqueue, AGraphThatCannotKeepTheStepIsAnError) {
  for (const char* call : {"cudaUserObjectCreate", "cudaGraphRetainUserObject"}) {
    Program p = trainer();
    p.run();
    p.sync();
    emu::fail(call, 1, cudaErrorMemoryAllocation);
    const std::string message = refusal(p);
    EXPECT_TRUE(contains(message, call)) << message;
    EXPECT_TRUE(contains(message, "enqueue")) << message;
    (void)cudaGetLastError();
    p.run();
    p.sync();
  }
  EXPECT_EQ(emu::live_objects().user_objects, 0u);
}
#endif

// The host gives new numbers before each launch, and waits for the launch before.
TEST_F(Enqueue, ALaunchReadsWhatTheHostGaveBefore) {
  Graph g;
  Value x = g.input("x", f32, {1}), rows = g.input("rows", f32, {8, 1});
  g.record("sum", sum(x * 1.0) + sum(rows));
  g.record("step", cast(g.step(), f32));
  Program p = compile(g, {.target = cuda(0)});
  p.write(x, std::vector<float>{0});
  p.write(rows, std::vector<float>(8));
  p.run();
  cudaGraphExec_t exec = capture([&] { p.enqueue(stream_); });
  std::vector<float> sums{0}, steps{0};
  for (int i = 1; i <= 24; ++i) {
    p.write(x, std::vector<float>{static_cast<float>(i)});
    if (i % 2 == 0) p.write(rows, std::vector<float>(8, static_cast<float>(100 * i)));
    if (i % 3 == 0) p.set_steps(10 * i);
    launch(exec);
    sums.push_back(static_cast<float>(i + 8 * 100 * (i - i % 2)));
    steps.push_back(i % 3 == 0 ? static_cast<float>(10 * i) : steps.back() + 1);
  }
  EXPECT_EQ(p.records("sum"), sums);
  EXPECT_EQ(p.records("step"), steps);
}

// What the launches of a graph find is what run() has left, though nothing orders the two on the device.
TEST_F(Enqueue, ALaunchComesBehindTheRunBefore) {
  float* memory = nullptr;
  ASSERT_EQ(cudaSuccess, cudaMalloc(reinterpret_cast<void**>(&memory), 256));
  ASSERT_EQ(cudaSuccess, cudaMemset(memory, 0, 256));
  ASSERT_EQ(cudaSuccess, cudaDeviceSynchronize());
  {
    Graph g;
    Variable w("w", Tensor({0.0f}));
    assign(w, g.value(w) + 1.0);
    g.record("w", g.updated(w));
    Program p = compile(g, {.target = cuda(0)});
    p.bind_memory(w, memory, 256);
    p.run();
    cudaGraphExec_t exec = capture([&] { p.enqueue(stream_); });
    std::vector<float> steps{1};
    auto expect_steps = [&](int count) {
      launch(exec);
      for (int i = 0; i <= count; ++i) steps.push_back(steps.back() + 1);
      float now = 0;
      EXPECT_EQ(cudaSuccess, cudaMemcpy(&now, memory, sizeof now, cudaMemcpyDefault));
      EXPECT_EQ(now, steps.back());
    };
    for (int i = 0; i < 4; ++i) {
      p.run(sink, {.steps = 10});
      expect_steps(10);
      p.run(sink, {.steps = 10, .stream = stream_});
      expect_steps(10);
      p.enqueue(stream_);
      expect_steps(1);
    }
    EXPECT_EQ(p.records("w"), steps);
  }
  EXPECT_EQ(cudaSuccess, cudaFree(memory));
}

// In the order of a stream nobody waits: neither is a write too late for the launch behind it, nor too early for the
// one before.
TEST_F(Enqueue, AWriteInTheOrderOfAStream) {
  Graph g;
  Value x = g.input("x", f32, {256});
  g.record("sum", sum(x));
  Program p = compile(g, {.target = cuda(0)});
  p.write(x, std::vector<float>(256));
  p.run();
  cudaGraphExec_t exec = capture([&] { p.enqueue(stream_); });
  std::vector<float> sums{0};
  for (int i = 1; i <= 24; ++i) {
    p.write(x, std::vector<float>(256, static_cast<float>(i)), {.stream = stream_});
    ASSERT_EQ(cudaSuccess, cudaGraphLaunch(exec, stream_));
    sums.push_back(256.0f * static_cast<float>(i));
  }
  ASSERT_EQ(cudaSuccess, cudaStreamSynchronize(stream_));
  EXPECT_EQ(p.records("sum"), sums);
  p.write(x, Tensor(f32, {256}), {.stream = stream_});
  p.run(sink, {.stream = stream_});
  EXPECT_EQ(p.records("sum"), std::vector<float>{0});
}

TEST_F(Enqueue, AWriteInTheOrderOfACaptureIsRefused) {
  Program p = trainer();
  ASSERT_EQ(cudaSuccess, cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  const std::string message = message_of([&] { p.write(x_, std::vector<float>{4, 3, 2, 1}, {.stream = stream_}); });
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(stream_, &graph));
  EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
  EXPECT_TRUE(contains(message, "is being captured")) << message;
  EXPECT_TRUE(contains(message, "bind_memory()")) << message;
  p.run();
  EXPECT_EQ(p.records("loss"), std::vector<float>{18.0625f}) << "nothing was written";
}

TEST_F(Enqueue, SeveralStepsAndSeveralGraphs) {
  Program by_run = trainer();
  for (int i = 0; i < 9; ++i) by_run.run();
  Program p = trainer();
  p.run();
  cudaGraphExec_t three = capture([&] {
    for (int i = 0; i < 3; ++i) p.enqueue(stream_);
  });
  cudaGraphExec_t one = capture([&] { p.enqueue(stream_); });
  EXPECT_EQ(nodes_of(0), 3 * nodes_of(1));
  launch(three);
  launch(one, 2);
  launch(three);
  EXPECT_EQ(p.records("loss"), by_run.records("loss"));
}

// Branches of the caller's graph would run steps beside each other, which change the same memory.
TEST_F(Enqueue, StepsOnBranchesOfOneCaptureRunOneAfterTheOther) {
  cudaStream_t side = nullptr;
  cudaEvent_t fork = nullptr, joined = nullptr;
  ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  ASSERT_EQ(cudaSuccess, cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  ASSERT_EQ(cudaSuccess, cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  Program by_run = trainer();
  for (int i = 0; i < 10; ++i) by_run.run();
  Program p = trainer();
  p.run();
  for (int i = 0; i < 2; ++i) {
    cudaGraphExec_t exec = capture([&] {
      EXPECT_EQ(cudaSuccess, cudaEventRecord(fork, stream_));
      EXPECT_EQ(cudaSuccess, cudaStreamWaitEvent(side, fork, 0));
      p.enqueue(stream_);
      p.enqueue(side);
      p.enqueue(stream_);
      EXPECT_EQ(cudaSuccess, cudaEventRecord(joined, side));
      EXPECT_EQ(cudaSuccess, cudaStreamWaitEvent(stream_, joined, 0));
    });
    std::size_t roots = 0;
    EXPECT_EQ(cudaSuccess, cudaGraphGetRootNodes(graphs_.back(), nullptr, &roots));
    EXPECT_EQ(roots, 1u);
    launch(exec);
  }
  cudaGraphExec_t three = capture([&] {
    for (int i = 0; i < 3; ++i) p.enqueue(stream_);
  });
  EXPECT_EQ(nodes_of(0), nodes_of(2));
  launch(three);
  EXPECT_EQ(p.records("loss"), by_run.records("loss"));
  EXPECT_EQ(cudaSuccess, cudaEventDestroy(joined));
  EXPECT_EQ(cudaSuccess, cudaEventDestroy(fork));
  EXPECT_EQ(cudaSuccess, cudaStreamDestroy(side));
}

TEST_F(Enqueue, InTheFunctionOfASinkCache) {
  Program by_run = trainer();
  for (int i = 0; i < 8; ++i) by_run.run();
  Program p = trainer();
  SinkCache sinks({.strict = true});
  for (int i = 0; i < 8; ++i) {
    sinks.run(stream_, Key{}, [&](cudaStream_t s) {
      p.enqueue(s);
      testing::guest_add(s, sum_, 1);
    });
  }
  EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream_));
  EXPECT_EQ(sinks.report().launches, 7u) << sinks.report();
  EXPECT_EQ(p.records("loss"), by_run.records("loss"));
  sinks.clear();
}

// Calls whose work would be done at the capture and be missing from every launch: the function runs as it is.
TEST_F(Enqueue, WhatACapturedFunctionWouldLoseIsAnErrorThatNamesEnqueue) {
  Program p = trainer();
  p.run();
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  const struct {
    const char* call;
    std::function<void(cudaStream_t)> act;
  } rows[] = {
      {"run", [&](cudaStream_t) { p.run(); }},
      {"run", [&](cudaStream_t s) { p.run(sink, {.stream = s}); }},
      {"run", [&](cudaStream_t) { p.enqueue(other); }},
      {"write",
       [&](cudaStream_t) {
         p.write(x_, std::vector<float>{4, 3, 2, 1});
       }},
      {"set_steps", [&](cudaStream_t) { p.set_steps(7); }},
      {"time_ops", [&](cudaStream_t) { p.time_ops(1); }},
      {"set_seed", [&](cudaStream_t) { p.set_seed(7); }},
      {"sync", [&](cudaStream_t) { p.sync(); }},
      {"poll", [&](cudaStream_t) { p.poll(); }},
      {"steps", [&](cudaStream_t) { p.steps(); }},
      {"output", [&](cudaStream_t) { p.output("loss"); }},
      {"records", [&](cudaStream_t) { p.records("loss"); }},
      {"write()",
       [&](cudaStream_t) {
         w_.write(Tensor({4.0f, 3.0f, 2.0f, 1.0f}));
       }},
      {"read()", [&](cudaStream_t) { (void)w_.read(); }},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.call);
    SinkOptions options{.warm_runs = 0};
    options.log = [](LogLevel, std::string_view) {};
    SinkCache sinks(options);
    for (int i = 0; i < 5; ++i) {
      sinks.run(stream_, Key{}, [&](cudaStream_t s) {
        testing::guest_add(s, sum_, 1);
        row.act(s);
      });
    }
    p.sync();
    const SinkReport report = sinks.report();
    ASSERT_EQ(report.failures.size(), 1u) << report;
    const std::string &problem = report.failures[0].problem, &remedy = report.failures[0].remedy;
    const bool is_of_variable = contains(row.call, "()");
    EXPECT_TRUE(contains(problem, std::string(": ") + row.call + (is_of_variable ? " was" : ": was") +
                                      " called in a function that a SinkCache captures"))
        << problem;
    EXPECT_TRUE(contains(remedy, is_of_variable ? "before or after SinkCache::run()"
                                                : "call enqueue() with the stream that the function is given"))
        << remedy;
    EXPECT_EQ(report.as_is, 5u) << report;
  }
  EXPECT_EQ(p.steps(), 7 + 5) << "once each time";
  EXPECT_EQ(cudaSuccess, cudaStreamDestroy(other));
}

// Loops and branches become conditional nodes of the caller's graph; branches that do not depend on each other fork.
TEST_F(Enqueue, ControlFlowAndForksAreCaptured) {
  Graph g;
  Value x = g.input("x", f32, {4});
  Value zero = g.constant(Tensor::scalar(0));
  auto [u, n] = while_(
      {x, zero}, [](Value s, Value) { return sum(s) < 100.0; },
      [](Value s, Value i) {
        return std::array{s * 2.0, i + 1};
      });
  Value chosen = if_(
      n > 2.0, [&] { return u * 0.5; }, [&] { return u + 100.0; });
  g.output("y", plus_branches(chosen, x));
  Program p = compile(g, {.target = cuda(0), .tuning = {.fuse = false}});  // a group would be all branches
  const std::vector<std::vector<float>> inputs = {{1, 2, 3, 4}, {9, 9, 9, 9}, {0.5f, 0, 0, 1}, {100, 1, 1, 1}};
  std::vector<Tensor> expected;
  for (const auto& input : inputs) {
    p.write(x, input);
    p.run(interactive_serial);
    expected.push_back(p.output("y"));
  }
  ASSERT_GT(plan_of(p).streams, 1);
  cudaGraphExec_t exec = capture([&] {
    testing::guest_add(stream_, sum_, 1);
    p.enqueue(stream_);
    testing::guest_add(stream_, sum_, 1);
  });
  // A second capture while the streams of the first may still belong to it, and while the program sinks.
  cudaGraphExec_t again = capture([&] {
    p.enqueue(stream_);
    p.enqueue(stream_);
  });
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    p.write(x, inputs[i]);
    p.sync();
    launch(exec);
    EXPECT_EQ(values(p.output("y")), values(expected[i]));
    launch(again);
    EXPECT_EQ(values(p.output("y")), values(expected[i]));
    p.run(sink);
    EXPECT_EQ(values(p.output("y")), values(expected[i]));
  }
}

TEST_F(Enqueue, TwoCapturesAtOnceDoNotShareStreams) {
  Graph g;
  Value x = g.input("x", f32, {4});
  g.output("y", plus_branches(x, x));
  Program p = compile(g, {.target = cuda(0)});
  p.write(x, std::vector<float>{1, 2, 3, 4});
  p.run();
  const Tensor expected = p.output("y");
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  cudaGraphExec_t outer = capture([&] {
    p.enqueue(stream_);
    cudaGraph_t inner = nullptr;
    EXPECT_EQ(cudaSuccess, cudaStreamBeginCapture(other, cudaStreamCaptureModeThreadLocal));
    p.enqueue(other);
    EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(other, &inner));
    graphs_.push_back(inner);
  });
  p.write(x, std::vector<float>{0, 0, 0, 0});
  p.sync();
  launch(outer);
  EXPECT_NE(values(p.output("y")), values(expected));
  EXPECT_EQ(nodes_of(0), nodes_of(1));
  EXPECT_EQ(cudaSuccess, cudaStreamDestroy(other));
}

TEST_F(Enqueue, RandomOpsDrawNewNumbersAndFollowTheSeed) {
  Graph g;
  g.record("r", sum(random_uniform(g, f32, {4})));
  auto make = [&] { return compile(g, {.target = cuda(0), .seed = 7}); };
  Program by_run = make();
  for (int i = 0; i < 4; ++i) by_run.run();
  by_run.set_seed(9);
  for (int i = 0; i < 2; ++i) by_run.run();
  Program p = make();
  p.run();
  cudaGraphExec_t exec = capture([&] { p.enqueue(stream_); });
  launch(exec, 3);
  p.set_seed(9);
  launch(exec, 2);
  EXPECT_EQ(p.records("r"), by_run.records("r"));
}

TEST_F(Enqueue, AFailedStepIsReportedAndLaterOnesCommitAgain) {
  Graph g;
  Value x = g.input("x", f32, {2});
  Variable count("count", Tensor({0.0f}));
  assign(count, g.value(count) + 1.0);
  g.output("y", log(x));
  Program p = compile(g, {.target = cuda(0), .check_finite = true});
  p.write(x, std::vector<float>{1, 2});
  p.run();
  cudaGraphExec_t exec = capture([&] { p.enqueue(stream_); });
  launch(exec);
  EXPECT_EQ(p.steps(), 2);
  p.write(x, std::vector<float>{1, -2});
  p.sync();
  launch(exec, 2);
  const std::string message = message_of([&] { p.sync(); });
  EXPECT_TRUE(contains(message, "log")) << message;
  EXPECT_TRUE(contains(message, "in step 2")) << message;
  EXPECT_EQ(p.steps(), 2);
  EXPECT_TRUE(contains(message_of([&] { p.output("y"); }), "left no outputs")) << "nothing was launched since";
  p.write(x, std::vector<float>{1, 4});
  p.sync();
  launch(exec, 3);
  EXPECT_NEAR(p.output("y").at(1), std::log(4.0), 1e-6);
  EXPECT_EQ(p.steps(), 5);
  EXPECT_EQ(count.read().at(0), 5.0);
}

TEST_F(Enqueue, ReadsAndWritesMemoryOfTheCallers) {
  float* memory = nullptr;
  ASSERT_EQ(cudaSuccess, cudaMalloc(reinterpret_cast<void**>(&memory), 512));
  const float first[] = {1, 2}, second[] = {3, 4};
  Graph g;
  Value x = g.input("x", f32, {2});
  Value y = x * 10.0;
  g.output("y", y);
  {
    Program p = compile(g, {.target = cuda(0)});
    p.bind_memory(x, memory, 256);
    p.bind_memory(y, memory + 64, 256);
    p.run();
    p.sync();
    cudaGraphExec_t exec = capture([&] { p.enqueue(stream_); });
    for (const auto& values : {first, second}) {
      ASSERT_EQ(cudaSuccess, cudaMemcpy(memory, values, sizeof first, cudaMemcpyDefault));
      launch(exec);
      float result[2] = {};
      ASSERT_EQ(cudaSuccess, cudaMemcpy(result, memory + 64, sizeof result, cudaMemcpyDefault));
      EXPECT_EQ(result[0], 10 * values[0]);
      EXPECT_EQ(result[1], 10 * values[1]);
    }
    const std::string message = message_of([&] { p.bind_memory(x, memory, 256); });
    EXPECT_TRUE(contains(message, "a graph of yours holds a step of this program")) << message;
    launch(exec);
  }
  EXPECT_EQ(cudaSuccess, cudaFree(memory));
}

TEST_F(Enqueue, WhatItCapturedIsKeptWhateverTheShapeCacheHolds) {
  Graph g;
  Value x = g.input("x", f32, {open(4)});
  g.output("y", x * 2.0 + 1.0);
  Program p =
      compile(g, {.target = cuda(0), .limits = {.shape_cache_bytes = 1}, .log = [](LogLevel, std::string_view) {}});
  p.write(x, std::vector<float>(8, 1.0f));
  p.run();
  cudaGraphExec_t exec = capture([&] { p.enqueue(stream_); });
  for (std::size_t size : {100, 200, 300}) {
    p.write(x, std::vector<float>(size, 2.0f));
    p.run();
    p.sync();
  }
  EXPECT_LE(p.counters().cached_shapes, 2u);
  p.write(x, std::vector<float>(8, 3.0f));
  p.sync();
  launch(exec);
  EXPECT_EQ(values(p.output("y")), std::vector<float>(8, 7.0f));
}

TEST_F(Enqueue, HostOpsOfTheStreamAreHostNodes) {
  Graph g;
  Value x = g.input("x", f32, {2});
  g.output("y", emit(testing::cpu_plus_one, {x * 2.0})[0] * 3.0);
  Program p = compile(g, {.target = cuda(0)});
  p.write(x, std::vector<float>{1, 2});
  p.run();
  const Tensor expected = p.output("y");
  cudaGraphExec_t exec = capture([&] { p.enqueue(stream_); });
  p.write(x, std::vector<float>{0, 0});
  p.sync();
  launch(exec);
  EXPECT_EQ(p.output("y").at(0), 3.0);
  p.write(x, std::vector<float>{1, 2});
  p.sync();
  launch(exec);
  EXPECT_EQ(values(p.output("y")), values(expected));
}

struct Refusal {
  const char* name;
  std::vector<const char*> words;
  std::function<Program()> make;
};

TEST_F(Enqueue, WhatCannotBeCapturedIsRefusedBeforeAnythingIs) {
  auto made = [](const std::function<void(Graph&, const Value&)>& build, bool is_run = true) {
    Graph g;
    Value x = g.input("x", f32, {2});
    build(g, x);
    Program p = compile(g, {.target = cuda(0)});
    p.write(x, std::vector<float>{1, 2});
    if (is_run) p.run();
    return p;
  };
  const Refusal rows[] = {
      {"not run before",
       {"the program has not run with these input shapes", "call enqueue() or run() once before the capture begins"},
       [&] { return made([](Graph& g, const Value& x) { g.output("y", x + 1.0); }, false); }},
      {"a feed",
       {"the graph has feeds", "use inputs"},
       [] {
         Graph g;
         Value x = g.feed("x", f32, {2});
         g.record("y", sum(x));
         Program p = compile(g, {.target = cuda(0)});
         p.write(x, std::vector<float>{1, 2});
         p.run();
         return p;
       }},
      {"not one launch",
       {"the stream is being captured, but the step is not one launch", "not capturable"},
       [&] { return made([](Graph& g, const Value& x) { g.output("y", emit(waits_op, {x * 2.0})[0]); }); }},
      {"a copy that run() makes",
       {"cpu_plus_one (cuda_enqueue_test.cpp:", "reads a Variable or an input of another device"},
       [&] { return made([](Graph& g, const Value& x) { g.output("y", emit(testing::cpu_plus_one, {x})[0]); }); }},
  };
  for (const Refusal& row : rows) {
    SCOPED_TRACE(row.name);
    Program p = row.make();
    const std::string message = refusal(p);
    for (const char* word : row.words) EXPECT_TRUE(contains(message, word)) << message;
    EXPECT_TRUE(contains(message, "cuda_enqueue_test.cpp:")) << message;
    p.run();
    p.sync();
  }
}

TEST_F(Enqueue, ABrokenCaptureIsAnErrorAndTheProgramGoesOn) {
  Graph g;
  Value x = g.input("x", f32, {2});
  g.output("y", emit(breaks_op, {x * 2.0})[0] + 1.0);
  Program p = compile(g, {.target = cuda(0), .log = [](LogLevel, std::string_view) {}});
  p.write(x, std::vector<float>{1, 2});
  p.run(interactive_serial);
  ASSERT_EQ(cudaSuccess, cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  const std::string message = message_of([&] { p.enqueue(stream_); });
  for (const char* word : {"breaks", "end the capture, and destroy its graph", "cuda_enqueue_test.cpp:"})
    EXPECT_TRUE(contains(message, word)) << message;
  cudaGraph_t graph = nullptr;
  EXPECT_NE(cudaSuccess, cudaStreamEndCapture(stream_, &graph));
  (void)cudaGetLastError();
  p.run(interactive_serial);
  EXPECT_EQ(p.output("y").at(1), 5.0);
}

TEST(EnqueueOnTheCpu, IsRefused) {
  Graph g;
  g.output("y", g.constant(Tensor({1.0f})) + 1.0);
  Program p = compile(g);
  const std::string message = message_of([&] { p.enqueue(nullptr); });
  EXPECT_TRUE(contains(message, "enqueue")) << message;
  EXPECT_TRUE(contains(message, "the stream of the caller: ")) << message;
}

}  // namespace
}  // namespace graphsink::cuda_enqueue_test
