// Runs that are ordered on a CUDA stream of the caller.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "messages.h"
#include "program_fixture.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

namespace graphsink::cuda_caller_stream_test {
namespace {

using testing::contains;
using testing::message_of;

// Notes which ops ran, in order.
struct Order {
  void add(const char* name) {
    std::lock_guard guard(lock);
    names.emplace_back(name);
  }
  std::mutex lock;
  std::vector<std::string> names;
};
Order order;

void noting_body(const CpuArgs& a) {
  order.add("run");
  testing::plus_one(a);
}
const OpDef noting{.name = "noting", .infer = testing::infer_like_first, .bodies = {noting_body}};

void note(void* name) {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  order.add(static_cast<const char*>(name));
}

class CallerStream : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device answers";
    order.names.clear();
    ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    Value y = emit(noting, {x_ * 2.0})[0];
    g_.output("y", y * 3.0);
  }
  void TearDown() override {
    if (stream_) cudaStreamDestroy(stream_);
  }
  Program compiled() {
    Program p = graphsink::compile(g_, {.target = cuda(0)});
    p.write(x_, std::vector<float>{1, 2});
    return p;
  }
  static void launch(cudaStream_t stream, const char* name) {
    ASSERT_EQ(cudaSuccess, cudaLaunchHostFunc(stream, note, const_cast<char*>(name)));
  }

  Graph g_;
  Value x_ = g_.input("x", f32, {2});
  cudaStream_t stream_ = nullptr;
};

TEST_F(CallerStream, ARunComesBetweenWhatIsBeforeAndBehindIt) {
  for (cudaStream_t stream : {stream_, cudaStream_t(nullptr)}) {
    for (Mode mode : kAllModes) {
      Program p = compiled();
      order.names.clear();
      std::vector<std::string> expected;
      for (int i = 0; i < 3; ++i) {
        launch(stream, "before");
        p.run(mode, {.stream = stream});
        launch(stream, "behind");
        for (const char* name : {"before", "run", "behind"}) expected.emplace_back(name);
      }
      EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream));
      EXPECT_EQ(order.names, expected) << to_string(mode);
      EXPECT_EQ(p.output("y").at(1), 15.0);
    }
  }
}

TEST_F(CallerStream, CostsFiveCallsMore) {
  Program p = compiled();
  auto calls_of = [&](const RunOptions& options) {
    std::uint64_t before = p.counters().api_calls;
    p.run(sink, options);
    return p.counters().api_calls - before;
  };
  for (int i = 0; i < 3; ++i) p.run(sink, {.stream = stream_});
  std::uint64_t alone = calls_of({});
  EXPECT_EQ(calls_of({.stream = stream_}), alone + 5);
}

TEST_F(CallerStream, AStreamThatIsCapturedIsRefusedAndItsCaptureGoesOn) {
  Program p = compiled();
  p.run();
  p.sync();
  ASSERT_EQ(cudaSuccess, cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  std::string message = message_of([&] { p.run(sink, {.stream = stream_}); });
  for (const char* word :
       {"RunOptions::stream: the stream is being captured", "end the capture first", "cuda_caller_stream_test.cpp:"})
    EXPECT_TRUE(contains(message, word)) << message;
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(stream_, &graph));
  EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
  EXPECT_EQ(p.steps(), 1);
  p.run(sink, {.stream = stream_});
  EXPECT_EQ(p.output("y").at(0), 9.0);
}

TEST_F(CallerStream, AStreamOfAnotherDeviceIsRefused) {
#ifdef GRAPHSINK_EMULATED
  emu::set_device_count(2);
#endif
  if (cuda_device_count() < 2) GTEST_SKIP() << "needs two CUDA devices";
  Program p = compiled();
  cudaStream_t there = nullptr;
  ASSERT_EQ(cudaSuccess, cudaSetDevice(1));
  ASSERT_EQ(cudaSuccess, cudaStreamCreate(&there));
  ASSERT_EQ(cudaSuccess, cudaSetDevice(0));
  std::string message = message_of([&] { p.run(sink, {.stream = there}); });
  for (const char* word : {"the stream belongs to cuda:1, the program runs on cuda:0", "cudaSetDevice(0)"})
    EXPECT_TRUE(contains(message, word)) << message;
  p.run(sink, {.stream = stream_});
  EXPECT_EQ(p.output("y").at(0), 9.0);
  EXPECT_EQ(cudaSuccess, cudaStreamDestroy(there));
#ifdef GRAPHSINK_EMULATED
  emu::set_device_count(1);
#endif
}

// Uses one stream after the other, and destroys each of them.
TEST_F(CallerStream, EachRunMayHaveAnother) {
  Program p = compiled();
  std::vector<std::string> expected;
  order.names.clear();
  for (int i = 0; i < 4; ++i) {
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaSuccess, cudaStreamCreate(&stream));
    launch(stream, "before");
    p.run(sink, {.stream = stream});
    launch(stream, "behind");
    EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream));
    EXPECT_EQ(cudaSuccess, cudaStreamDestroy(stream));
    for (const char* name : {"before", "run", "behind"}) expected.emplace_back(name);
  }
  EXPECT_EQ(order.names, expected);
}

}  // namespace
}  // namespace graphsink::cuda_caller_stream_test
