// Mistakes of kernels and of their callers that this device exists to find; see also kernel_test.cpp for barriers that
// are missing or divergent, and order_test.cpp for a missing event wait.
#include <cstdlib>
#include <set>
#include <string>

#include "test_support.h"

namespace emu_test::mistake_test {
namespace {

class MistakeTest : public EmulatorTest {};

TEST_F(MistakeTest, ABarrierThatDeadlocksFails) {
  for (const unsigned seed : {0u, 1u, 2u}) {
    emu::set_seed(seed);
    ASSERT_OK(launch_deadlock(stream_));
    EXPECT_CUDA(cudaErrorLaunchFailure, cudaStreamSynchronize(stream_));
    EXPECT_NE(std::string::npos, emu::last_failure().find("waits for ever")) << emu::last_failure();
    EXPECT_NE(std::string::npos, emu::last_failure().find("test_kernels.cu")) << emu::last_failure();
    emu::reset();
  }
}

TEST_F(MistakeTest, AReadBeforeTheSyncSeesOldDataWithSomeSeed) {
  int* pinned = nullptr;
  ASSERT_OK(cudaMallocHost(reinterpret_cast<void**>(&pinned), sizeof(int)));
  int *target = device<int>(1), wrong = 0;
  for (int seed = 0; seed < 3; ++seed) {
    emu::set_seed(static_cast<unsigned>(seed));
    *pinned = -1;
    ASSERT_OK(launch_set(stream_, target, seed));
    ASSERT_OK(cudaMemcpyAsync(pinned, target, sizeof(int), cudaMemcpyDeviceToHost, stream_));
    wrong += *pinned != seed;
    ASSERT_OK(cudaStreamSynchronize(stream_));
    EXPECT_EQ(seed, *pinned);
  }
  EXPECT_GT(wrong, 0);
  ASSERT_OK(cudaFreeHost(pinned));
}

TEST_F(MistakeTest, AProgrammaticLaunchWithAThreadThatDoesNotWaitFails) {
  for (const bool in_graph : {false, true}) {
    for (const int waiting : {0, 1, 2}) {
      SCOPED_TRACE(std::to_string(waiting) + (in_graph ? " in a graph" : ""));
      int* memory = device(std::vector<int>{0, 0});
      if (in_graph) {
        ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
      }
      ASSERT_OK(launch_set(stream_, memory, 5));
      ASSERT_OK(launch_add_programmatic(stream_, memory + 1, memory, 1, waiting));
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      if (in_graph) {
        ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
        ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
        ASSERT_OK(cudaGraphLaunch(exec, stream_));
      }
      EXPECT_CUDA(waiting < 2 ? cudaErrorLaunchFailure : cudaSuccess, cudaStreamSynchronize(stream_));
      if (waiting < 2) {
        EXPECT_NE(std::string::npos, emu::last_failure().find("cudaGridDependencySynchronize")) << emu::last_failure();
        emu::reset();
      } else {
        EXPECT_EQ((std::vector<int>{5, 6}), host(memory, 2));
      }
      if (!in_graph) continue;
      ASSERT_OK(cudaGraphExecDestroy(exec));
      ASSERT_OK(cudaGraphDestroy(graph));
    }
  }
}

// The attribute is the business of the kernel in front alone: a first node has nothing to wait for.
TEST_F(MistakeTest, AFirstNodeNeedNotWait) {
  int* memory = device(std::vector<int>{1, 0});
  ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  ASSERT_OK(launch_add_programmatic(stream_, memory + 1, memory, 1, 0));
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
  launch_and_destroy(graph);
  EXPECT_EQ((std::vector<int>{1, 2}), host(memory, 2));
}

// In a process of its own, which ends as thread sanitizer or address sanitizer want it to.
[[noreturn]] void run_and_exit(cudaError_t launched, cudaStream_t stream) {
  std::exit(launched == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess ? 0 : 1);
}

#if defined(__SANITIZE_THREAD__)
TEST_F(MistakeTest, ARaceIsReported) {
  int* last = device<int>(1);
  EXPECT_EXIT(run_and_exit(launch_race(stream_, last, 64), stream_), ::testing::ExitedWithCode(66), "data race");
}
#else
TEST_F(MistakeTest, ARaceEndsDifferentlyWithSomeSeed) {
  std::set<int> seen;
  for (const unsigned seed : {0u, 1u, 2u}) {
    emu::set_seed(seed);
    int* last = device<int>(1);
    ASSERT_OK(launch_race(stream_, last, 64));
    ASSERT_OK(cudaStreamSynchronize(stream_));
    seen.insert(host(last, 1)[0]);
  }
  EXPECT_GT(seen.size(), 1u);
}
#endif

#if defined(__SANITIZE_ADDRESS__)
TEST_F(MistakeTest, AWriteBeyondAnAllocationIsReported) {
  int* data = device<int>(10);
  ASSERT_OK(launch_overrun(stream_, data, 10));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_DEATH(run_and_exit(launch_overrun(stream_, data, 11), stream_), "overrun");
}
#endif

TEST_F(MistakeTest, AWriteOutsideOfTheDevicesMemoryEndsTheProcess) {
  EXPECT_DEATH(run_and_exit(launch_overrun(stream_, nullptr, 1), stream_), "");
}

}  // namespace
}  // namespace emu_test::mistake_test
