// What a failing CUDA call must not do, one by one; fault_loop_test.cpp makes all of them fail.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "device/cuda/open.h"
#include "fault_harness.h"
#include "graphsink/graphsink.h"
#include "test_ops.h"

namespace graphsink {
namespace {

using testing::LogText;

template <class F>
std::string message_of(F&& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}
bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

class Fault : public ::testing::Test {
 protected:
  void TearDown() override {
    emu::reset();
    emu::release_memory();
  }
};

// Its commit has two kernels, one of sgd and one of the store of `total`; a third ends the step.
struct TwoKernelCommit {
  static constexpr int kLastKernels = 3;
  Graph g;
  Value x = g.feed("x", f32, {1});
  Variable scale{"scale", Tensor({2.0f})}, total{"total", Tensor({0.0f})};
  Program p;
  TwoKernelCommit() : p(build()) { p.write(x, std::vector<float>{1}); }

  Program build() {
    Value y = x * scale;
    assign(total, g.value(total) + y);
    sgd(sum(y), {scale}, {.lr = 0.5});
    g.record("loss", sum(y));
    return compile(g, {.target = cuda(0)});
  }
  // How many kernels one interactive step launches.
  int kernels() {
    emu::reset_calls();
    p.run(interactive);
    p.sync();
    return static_cast<int>(emu::calls("cudaLaunchKernelExC"));
  }
};

class BrokenCommit : public Fault, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Kernel, BrokenCommit, ::testing::Values(1, 0),
                         [](const auto& info) { return info.param == 0 ? "end_of_the_step" : "second_of_the_commit"; });

TEST_P(BrokenCommit, IsSaidAtEveryCallUntilTheVariablesAreWritten) {
  TwoKernelCommit model;
  int kernels = model.kernels();
  Tensor scale = model.scale.read(), total = model.total.read();
  emu::fail("cudaLaunchKernelExC", kernels - GetParam(), cudaErrorLaunchOutOfResources);
  std::string thrown = message_of([&] { model.p.run(interactive); });
  EXPECT_TRUE(contains(thrown, "broke off while it committed: cudaLaunchKernelEx returned")) << thrown;
  for (const std::string& message :
       {message_of([&] { model.p.run(interactive); }), message_of([&] { model.p.run(sink); }),
        message_of([&] { model.p.sync(); }), message_of([&] { (void)model.p.read("loss"); }),
        message_of([&] { (void)model.scale.read(); }), message_of([&] { (void)model.total.read(); })}) {
    EXPECT_TRUE(contains(message, "broke off while it committed: cudaLaunchKernelEx returned")) << message;
    EXPECT_TRUE(contains(message, "remedy: write their values from before the step")) << message;
  }
  model.scale.write(scale);  // one of two is not enough for the program
  EXPECT_EQ(model.scale.read().at(0), scale.at(0));
  EXPECT_TRUE(contains(message_of([&] { model.p.run(interactive); }), "broke off"));
  EXPECT_EQ(model.p.steps(), 1);
  model.total.write(total);
  model.p.run(interactive);
  model.p.sync();
  EXPECT_EQ(model.p.steps(), 2);
  EXPECT_EQ(model.p.read("loss"), (std::vector<float>{2, 1.5}));
  EXPECT_EQ(model.scale.read().at(0), 1.0);
  EXPECT_EQ(model.total.read().at(0), 3.5);
}

TEST_F(Fault, BeforeTheFirstKernelOfTheCommitNothingIsBroken) {
  TwoKernelCommit model;
  int kernels = model.kernels();
  for (int nth = 1; nth <= kernels - (TwoKernelCommit::kLastKernels - 1); ++nth) {
    emu::fail("cudaLaunchKernelExC", nth, cudaErrorLaunchOutOfResources);
    EXPECT_TRUE(contains(message_of([&] { model.p.run(interactive); }), "cudaLaunchKernelEx returned"));
    model.p.sync();
    EXPECT_EQ(model.p.steps(), 1);
    EXPECT_EQ(model.scale.read().at(0), 1.5);
    EXPECT_EQ(model.total.read().at(0), 2.0);
  }
}

// Another program that uses the Variables must not go on with them either.
TEST_F(Fault, ABrokenCommitIsSaidByTheOtherProgramsOfItsVariables) {
  TwoKernelCommit model;
  int kernels = model.kernels();
  Graph g;
  g.record("scale", sum(g.value(model.scale)));
  Program other = compile(g, {.target = cuda(0)});
  other.run(interactive);
  emu::fail("cudaLaunchKernelExC", kernels, cudaErrorLaunchOutOfResources);
  EXPECT_THROW(model.p.run(interactive), Error);
  EXPECT_TRUE(contains(message_of([&] { other.run(interactive); }), "broke off while it committed"));
}

// A reader that waits for the end of the run must not take a half of the step for the Variable's value.
TEST_F(Fault, ABrokenCommitIsSaidToAThreadThatWaitedToReadTheVariable) {
  struct Hook {
    std::function<void()>* call;
  };
  // Runs on the thread of run() in a split mode, before the commit.
  static const OpDef hook_op{.name = "hook", .infer = testing::infer_like_first, .cpu = [](const CpuArgs& a) {
                               (*a.attrs<Hook>().call)();
                               *a.out<float>(0) = *a.in<float>(0);
                             }};
  std::function<void()> call = [] {};
  Variable first("first", Tensor({0.0f})), second("second", Tensor({0.0f}));
  Graph g;
  Value one = emit(hook_op, {g.value(first) * 0.0 + 1.0}, Hook{&call})[0];
  assign(first, g.value(first) + one);
  assign(second, g.value(second) + one);
  Program p = compile(g, {.target = cuda(0)});
  p.run(split_serial);
  p.sync();
  emu::reset_calls();
  p.run(split_serial);
  p.sync();
  auto kernels = static_cast<int>(emu::calls("cudaLaunchKernelExC"));
  std::string said;
  std::thread reader;
  call = [&] {
    reader = std::thread([&] { said = message_of([&] { (void)first.read(); }); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  emu::fail("cudaLaunchKernelExC", kernels, cudaErrorLaunchOutOfResources);
  EXPECT_THROW(p.run(split_serial), Error);
  reader.join();
  EXPECT_TRUE(contains(said, "broke off while it committed")) << said;
}

TEST_F(Fault, AReadThatFailsLosesNoRecords) {
  TwoKernelCommit model;
  model.p.run(interactive);
  model.p.sync();
  const char* call = "cudaStreamSynchronize";  // the values do not need it, sync() does
  emu::fail(call, 1, cudaErrorInvalidValue);
  EXPECT_TRUE(contains(message_of([&] { (void)model.p.read("loss"); }), call));
  EXPECT_EQ(model.p.read("loss"), (std::vector<float>{2}));
}

TEST_F(Fault, PollAndTryReadWaitForNothingAndCopyNothing) {
  TwoKernelCommit model;
  for (Mode mode : {interactive, sink, sink}) {
    model.p.run(mode);
    emu::reset_calls();
    std::size_t polls = 1;
    while (!model.p.poll()) ++polls;
    EXPECT_EQ(model.p.try_read("loss").size(), 1u);
    EXPECT_EQ(emu::calls("cudaStreamQuery"), polls);
    // Besides the mode of captures, which poll() sets and restores, nothing else.
    EXPECT_EQ(emu::total_calls(), polls + emu::calls("cudaThreadExchangeStreamCaptureMode"));
  }
}

TEST_F(Fault, APollThatFailsSaysSoAndLosesNothing) {
  TwoKernelCommit model;
  model.p.run(interactive);
  emu::fail("cudaStreamQuery", 1, cudaErrorInvalidValue);
  EXPECT_TRUE(contains(message_of([&] { (void)model.p.poll(); }), "cudaStreamQuery returned"));
  while (!model.p.poll()) {
  }
  EXPECT_EQ(model.p.try_read("loss"), (std::vector<float>{2}));
}

TEST_F(Fault, AWriteThatFailsCountsAsNone) {
  TwoKernelCommit model;
  emu::fail("cudaMemcpyAsync", 1, cudaErrorInvalidValue);
  EXPECT_THROW(model.p.write(model.x, std::vector<float>{5}), Error);
  EXPECT_TRUE(contains(message_of([&] { model.p.run(interactive); }), "nothing was written to \"x\""));
  model.p.write(model.x, std::vector<float>{5});
  model.p.run(interactive);
  EXPECT_EQ(model.p.read("loss"), (std::vector<float>{10}));
}

// Streams that were not joined yet when issuing failed.
TEST_F(Fault, WhatAFailedStepLeavesOnOtherStreamsIsWaitedFor) {
  Graph g;
  Variable state("state", Tensor({0.5f}));
  Value x = g.feed("x", f32, {1}), left = x, right = g.value(state);
  for (int i = 0; i < 4; ++i) left = left * 0.75 + 0.5, right = right * 0.5 - 0.25;
  assign(state, left + right);
  Program p = compile(g, {.target = cuda(0)});
  ASSERT_GT(p.plan().streams, 1);
  p.write(x, std::vector<float>{1});
  emu::reset_calls();
  p.run(interactive_parallel);
  p.sync();
  auto kernels = static_cast<int>(emu::calls("cudaLaunchKernelExC"));
  for (int nth = 1; nth <= kernels; ++nth) {
    emu::fail("cudaLaunchKernelExC", nth, cudaErrorLaunchOutOfResources);
    EXPECT_THROW(p.run(interactive_parallel), Error);
    (void)message_of([&] { p.sync(); });
    EXPECT_EQ(emu::outstanding(), 0u) << "kernel " << nth;
    state.write(Tensor({0.5f}));
  }
}

// The wait of sync() fails, not the step: what the step has to say is not lost.
TEST_F(Fault, AFailedWaitDoesNotHideAFailedStep) {
  Graph g;
  Value x = g.feed("x", f32, {1});
  g.record("y", sum(emit(testing::cpu_refuse_negative, {x})[0]));
  Program p = compile(g, {.target = cuda(0)});
  p.write(x, std::vector<float>{-1});
  p.run(interactive);
  emu::fail("cudaStreamSynchronize", 1, cudaErrorInvalidValue);
  EXPECT_TRUE(contains(message_of([&] { p.sync(); }), "cudaStreamSynchronize returned"));
  EXPECT_TRUE(contains(message_of([&] { p.sync(); }), "its body threw: negative input"));
  p.sync();
}

// A copy whose end no event tells is still under way: its staging memory may not be used for the next.
TEST_F(Fault, StagingMemoryIsNotReusedWhileACopyReadsIt) {
  auto device = open_cuda_device(0);
  auto stream = device->make_stream();
  Memory memory = device->allocate(8 * sizeof(int));
  auto* numbers = static_cast<int*>(memory.get());
  int first = 1;
  emu::fail("cudaEventRecord", 1, cudaErrorInvalidValue);
  EXPECT_THROW(device->upload(*stream, numbers, &first, sizeof first), Error);
  for (int i = 1; i < 8; ++i) {
    int value = 10 * i;
    device->upload(*stream, numbers + i, &value, sizeof value);
  }
  int seen[8] = {};
  device->copy(*stream, seen, numbers, sizeof seen);
  device->sync(*stream);
  EXPECT_EQ(seen[0], 1);
  EXPECT_EQ(seen[7], 70);
}

TEST_F(Fault, WhatADestructorCannotReleaseIsLogged) {
  auto device = open_cuda_device(0);
  auto stream = device->make_stream();
  LogText log;
  emu::fail("cudaEventDestroy", 1, cudaErrorInvalidValue);
  stream.reset();
  EXPECT_TRUE(contains(log.take(), "cudaEventDestroy returned cudaErrorInvalidValue"));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "the user's next check would meet it";
}

// Every message of a program's life goes to its function, from the device and from what outlives the program too.
TEST_F(Fault, AllMessagesGoToTheLogOfTheProgram) {
  const auto kWithTheProgram = {
      "cudaGraphExecDestroy", "cudaGraphDestroy", "cudaStreamDestroy", "cudaEventDestroy", "cudaFree",
      "cudaFreeHost",         "cuMemUnmap"};
  const auto kWithTheVariable = {"cudaFree", "cublasLtMatmulDescDestroy", "cublasLtDestroy"};
  LogText spdlog_text;
  std::string seen;
  LogFunction keep = [&](LogLevel, std::string_view message) { seen += std::string(message) + "\n"; };
  auto expect_seen = [&](std::string_view part) {
    EXPECT_TRUE(contains(seen, part)) << part << " in: " << seen;
    seen.clear();
  };
  Graph g;
  Variable w("w", Tensor(f32, {3, 2}));
  Value x = g.feed("x", f32, {4, 3});
  g.record("y", sum(if_(
                    sum(x) > 0.0, [&] { return matmul(x, w); }, [&] { return matmul(x, w) * 2.0; })));
  {
    Program p = compile(g, {.target = cuda(0), .log = keep});
    p.write(x, std::vector<float>(12, 1.0f));
    emu::fail("cudaMalloc", 1, cudaErrorMemoryAllocation);
    p.bind();
    expect_seen("the kernels of a product are loaded by its first use");
    emu::fail("cudaStreamBeginCapture", 1, cudaErrorInvalidValue);
    p.run();
    expect_seen("a step runs op by op, its recording failed");
    p.run();
    for (const char* call : kWithTheProgram) emu::fail(call, 1, cudaErrorInvalidValue);
  }
  for (const char* call : kWithTheProgram) EXPECT_TRUE(contains(seen, call)) << call << " in: " << seen;
  seen.clear();
  // The home of the Variable keeps the device.
  for (const char* call : kWithTheVariable) emu::fail(call, 1, cudaErrorInvalidValue);
  w = Variable();
  g = Graph();
  x = Value();
  for (const char* call : kWithTheVariable) EXPECT_TRUE(contains(seen, call)) << call << " in: " << seen;
  EXPECT_EQ(spdlog_text.take(), "");
}

#if !defined(__SANITIZE_ADDRESS__)  // it leaks on purpose
TEST_F(Fault, AProgramThatCannotWaitKeepsItsMemory) {
  LogText log;
  std::size_t before = emu::live_objects().total();
  {
    TwoKernelCommit model;
    model.p.run(interactive);
    before = emu::live_objects().total();
    emu::fail("cudaStreamSynchronize", 1, cudaErrorInvalidValue, true);
    emu::fail("cudaDeviceSynchronize", 1, cudaErrorInvalidValue, true);
  }
  EXPECT_TRUE(contains(log.take(), "keeps its memory"));
  EXPECT_EQ(emu::live_objects().total(), before);
}
#endif

TEST_F(Fault, AProgramWaitsByOtherMeansBeforeItFrees) {
  LogText log;
  std::size_t before = emu::live_objects().total();
  {
    TwoKernelCommit model;
    model.p.run(interactive);
    emu::fail("cudaStreamSynchronize", 1, cudaErrorInvalidValue, true);
  }
  EXPECT_TRUE(contains(log.take(), "cudaStreamSynchronize returned"));
  EXPECT_EQ(emu::live_objects().total(), before);
}

// What is copied to the host before a step is copied again where that could not be issued.
TEST_F(Fault, AHoistedCopyThatFailsIsMadeByTheNextRun) {
  Graph g;
  Value x = g.input("x", f32, {1});
  g.output("y", emit(testing::cpu_plus_one, {x})[0]);
  Program p = compile(g, {.target = cuda(0)});
  p.write(x, std::vector<float>{1});
  p.run(interactive);
  EXPECT_EQ(p.read_output("y").at(0), 2.0);
  p.write(x, std::vector<float>{5});
  emu::reset_calls();
  emu::fail("cudaMemcpyAsync", 1, cudaErrorInvalidValue);
  EXPECT_TRUE(contains(message_of([&] { p.run(interactive); }), "cudaMemcpyAsync returned"));
  EXPECT_EQ(emu::injected().size(), 1u);
  p.run(interactive);
  EXPECT_EQ(p.read_output("y").at(0), 6.0);
}

// Allocations that find no memory: one row for each thing they are for.
struct MemoryRow {
  const char* name;
  enum Call { kCompile, kWrite, kBind } call;  // which of these meets it
  const char* function;
  int nth;  // call of the function in there
  std::vector<const char*> words;
};
void PrintTo(const MemoryRow& row, std::ostream* out) { *out << row.name; }

const MemoryRow kMemoryRows[] = {
    {"Status",
     MemoryRow::kCompile,
     "cudaMalloc",
     1,
     {"no room for what steps report: out of memory: cudaMalloc needs", "MiB are free"}},
    {"Records",
     MemoryRow::kCompile,
     "cudaHostAlloc",
     7,
     {"no room for the rings of 2 records (1.0 MiB): out of memory: cudaHostAlloc", "record fewer values"}},
    {"Slices",
     MemoryRow::kWrite,
     "cudaMalloc",
     1,
     {"no room for what was written (3.8 MiB): out of memory: cudaMalloc needs", "write fewer slices"}},
    {"Arena",
     MemoryRow::kBind,
     "cuMemCreate",
     1,
     {"no room for the arena", "out of memory: cuMemCreate for an arena needs", "MiB are free", "smaller batches"}},
    {"HostArena",
     MemoryRow::kBind,
     "cudaHostAlloc",
     2,
     {"no room for the values and workspaces of ops on the host (39.5 KiB)", "give these ops a .cuda body"}},
    {"Constant", MemoryRow::kBind, "cudaMalloc", 2, {"no room for a constant (1.0 KiB)", "make it smaller"}},
    {"Variable", MemoryRow::kBind, "cudaMalloc", 1, {"no room for Variable \"w\" (3.9 KiB)", "less state (sgd)"}},
};

class NoMemory : public Fault, public ::testing::WithParamInterface<MemoryRow> {};
INSTANTIATE_TEST_SUITE_P(For, NoMemory, ::testing::ValuesIn(kMemoryRows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(NoMemory, IsSaidWithWhatItWasForAndWhatTheProgramNeeds) {
  const MemoryRow& row = GetParam();
  Graph g;
  Variable w("w", Tensor(f32, {1000}));
  Value x = g.feed("x", f32, {5000});
  Value y = emit(testing::cpu_plus_one, {x})[0];
  g.record("y", sum(y) + sum(g.constant(Tensor(f32, {256}))));
  g.record("w", sum(g.value(w)));
  std::optional<Program> p;
  auto fail_in = [&](MemoryRow::Call call, auto&& act) {
    if (row.call != call) return act();
    emu::fail(row.function, row.nth, cudaErrorMemoryAllocation);
    std::string message = message_of(act);
    for (const char* word : row.words) EXPECT_TRUE(contains(message, word)) << word << " in: " << message;
    for (const char* word : {"fault_test.cpp:", "the program needs ", "its largest values are ", "feed \"x\" f32[5000]",
                             "(fault_test.cpp:", "; remedy: "})
      EXPECT_TRUE(contains(message, word)) << word << " in: " << message;
    EXPECT_EQ(emu::injected().size(), 1u);
    act();  // there is memory again
  };
  emu::reset_calls();
  fail_in(MemoryRow::kCompile, [&] { p.emplace(compile(g, {.target = cuda(0)})); });
  fail_in(MemoryRow::kWrite, [&] { p->write(x, std::vector<float>(200 * 5000, 1.0f)); });
  fail_in(MemoryRow::kBind, [&] { p->bind(); });
  p->run();
  EXPECT_EQ(p->read("y"), (std::vector<float>{10000}));
}

}  // namespace
}  // namespace graphsink
