// Collectives of a communicator of one rank, captured in a graph that is launched again and again: what one GPU and
// NCCL can show without MPI. On the software device the stand-in is taken.
#ifdef GRAPHSINK_CUDA
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "rank_world.h"
#include "ranks/nccl_api.h"
#include "ranks/nccl_comm.h"

namespace graphsink::testing {
namespace nccl_alone_test {

constexpr std::size_t kCount = 1000;

class NcclAlone : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device answers";
    name_nccl_standin();
    std::string problem;
    nccl_ = &NcclApi::find(problem);
    if (!problem.empty()) GTEST_SKIP() << problem;
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    NcclId id;
    ASSERT_EQ(nccl_->get_unique_id(&id), NcclResult::success);
    comm_.emplace(*nccl_, 0, 1, 0, id, Where());
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    for (float** memory : {&in_, &out_})
      ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(memory), kCount * sizeof(float)), cudaSuccess);
  }
  void TearDown() override {
    comm_.reset();
    for (float* memory : {in_, out_}) cudaFree(memory);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  void write(float first) {
    std::vector<float> values(kCount);
    std::iota(values.begin(), values.end(), first);
    ASSERT_EQ(cudaMemcpyAsync(in_, values.data(), kCount * sizeof(float), cudaMemcpyHostToDevice, stream_),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  void expect_read(float first) {
    std::vector<float> values(kCount);
    ASSERT_EQ(cudaMemcpyAsync(values.data(), out_, kCount * sizeof(float), cudaMemcpyDeviceToHost, stream_),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    for (std::size_t i = 0; i < kCount; i += 37) ASSERT_EQ(values[i], first + static_cast<float>(i)) << i;
  }
  // Captures what `call` enqueues, and launches it three times with other values.
  template <class Call>
  void expect_captured(const Call& call) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(call(), NcclResult::success);
    ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (const float first : {1.0f, 5.0f, -3.0f}) {
      write(first);
      ASSERT_EQ(cudaMemsetAsync(out_, 0, kCount * sizeof(float), stream_), cudaSuccess);
      ASSERT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
      expect_read(first);
    }
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }

  const NcclApi* nccl_ = nullptr;
  std::optional<NcclComm> comm_;
  cudaStream_t stream_ = nullptr;
  float *in_ = nullptr, *out_ = nullptr;
};

TEST_F(NcclAlone, CollectivesAreLaunchedAgainAndAgain) {
  for (const NcclReduction reduction : {NcclReduction::sum, NcclReduction::mean, NcclReduction::max})
    expect_captured(
        [&] { return nccl_->all_reduce(in_, out_, kCount, NcclType::f32, reduction, comm_->handle(), stream_); });
  expect_captured([&] { return nccl_->all_gather(in_, out_, kCount, NcclType::f32, comm_->handle(), stream_); });
  expect_captured([&] {
    return nccl_->reduce_scatter(in_, out_, kCount, NcclType::f32, NcclReduction::sum, comm_->handle(), stream_);
  });
  expect_captured([&] { return nccl_->broadcast(in_, out_, kCount, NcclType::f32, 0, comm_->handle(), stream_); });
}

TEST_F(NcclAlone, SendsToItself) {
  expect_captured([&] {
    EXPECT_EQ(nccl_->group_start(), NcclResult::success);
    EXPECT_EQ(nccl_->send(in_, kCount, NcclType::f32, 0, comm_->handle(), stream_), NcclResult::success);
    EXPECT_EQ(nccl_->receive(out_, kCount, NcclType::f32, 0, comm_->handle(), stream_), NcclResult::success);
    return nccl_->group_end();
  });
}

#ifdef GRAPHSINK_EMULATED

// What the library must not do, and the stand-in refuses, though some versions of NCCL let it pass.
TEST_F(NcclAlone, OneCaptureAtATimeHoldsCalls) {
  cudaStream_t other = nullptr;
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  const auto gather = [&](cudaStream_t stream) {
    return nccl_->all_gather(in_, out_, kCount, NcclType::f32, comm_->handle(), stream);
  };
  for (cudaStream_t stream : {stream_, other})
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(gather(stream_), NcclResult::success);
  EXPECT_EQ(gather(other), NcclResult::invalid_usage);
  EXPECT_EQ(gather(stream_), NcclResult::success);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(gather(other), NcclResult::success) << "the first capture has ended";
  EXPECT_EQ(cudaStreamEndCapture(other, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

#endif

}  // namespace nccl_alone_test
}  // namespace graphsink::testing
#endif
