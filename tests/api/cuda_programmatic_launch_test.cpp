// Tuning::programmatic_launch, as a program shows it.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "api/plan_of.h"
#include "graphsink/graphsink.h"
#include "messages.h"

namespace graphsink::cuda_programmatic_launch_test {
namespace {

using testing::contains;

class ProgrammaticLaunchOption : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device answers";
    if (!plan_of(make(true)).programmatic.is_on) GTEST_SKIP() << "it takes compute capability 9.0";
  }

  // Each op is one kernel, and each but the first follows another.
  Program make(bool programmatic_launch) {
    Graph g;
    Value x = g.input("x", f32, {4});
    Variable w("w", Tensor({0.5f, -1.0f, 0.25f, 2.0f}));
    Value y = tanh(x * w);
    assign(w, w + y);
    g.output("y", relu(y));
    Program p = compile(g, {.target = cuda(0),
                            .tuning = {.fuse = false, .programmatic_launch = programmatic_launch, .capture_after = 1}});
    p.write(x, std::vector<float>{1, 2, 3, 4});
    return p;
  }
};

TEST_F(ProgrammaticLaunchOption, IsCapturedAndGivesTheSame) {
  Program as_usual = make(false), overlapping = make(true);
  for (Program* p : {&as_usual, &overlapping}) {
    p->run(sink, {.steps = 1});
    p->run(sink, {.steps = 1});
    p->run(sink, {.steps = 3});
    p->run(sink, {.steps = 3});
  }
  const Tensor a = as_usual.output("y"), b = overlapping.output("y");
  EXPECT_TRUE(std::equal(a.as<float>().begin(), a.as<float>().end(), b.as<float>().begin()));
  const auto planned = static_cast<int>(plan_of(overlapping).programmatic.nodes);
  EXPECT_EQ(planned, static_cast<int>(plan_of(overlapping).nodes.size()) - 1);
  for (LaunchOf steps : {LaunchOf::one_step, LaunchOf::several_steps}) {
    ASSERT_TRUE(as_usual.captured(steps) && overlapping.captured(steps));
    EXPECT_EQ(as_usual.captured(steps)->programmatic_edges, 0);
    EXPECT_EQ(overlapping.captured(steps)->programmatic_edges, planned);
  }
  EXPECT_FALSE(contains(as_usual.explain(), "pdl")) << as_usual.explain();
  EXPECT_TRUE(contains(overlapping.explain(), "s0 pdl")) << overlapping.explain();
}

TEST_F(ProgrammaticLaunchOption, InAGraphOfTheCallers) {
  Program p = make(true);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  p.run(interactive);
  p.sync();
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaSuccess, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  p.enqueue(stream);
  ASSERT_EQ(cudaSuccess, cudaStreamEndCapture(stream, &graph));
  std::size_t count = 0;
  ASSERT_EQ(cudaSuccess, cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> data(count);
  ASSERT_EQ(cudaSuccess, cudaGraphGetEdges(graph, from.data(), to.data(), data.data(), &count));
  EXPECT_EQ(std::count_if(data.begin(), data.end(),
                          [](const cudaGraphEdgeData& d) { return d.type == cudaGraphDependencyTypeProgrammatic; }),
            static_cast<std::ptrdiff_t>(plan_of(p).programmatic.nodes));
  EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
  EXPECT_EQ(cudaSuccess, cudaStreamDestroy(stream));
}

// The clock that is read between two ops must not begin before the first has ended.
TEST_F(ProgrammaticLaunchOption, OpsAreTimedOneAfterTheOther) {
  Program p = make(true);
  p.run(interactive);
  EXPECT_FALSE(p.time_ops(3).empty());
}

}  // namespace
}  // namespace graphsink::cuda_programmatic_launch_test
