// Kernels that captured graphs launch programmatically.
#include <gtest/gtest.h>

#include "cuda_device_fixture.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

namespace graphsink::testing::cuda_programmatic_test {
namespace {

// What it captures is no kernel here.
const OpDef host_double_of_kernels = {
    .name = "host_double_of_kernels", .traits = {.kernels_wait = true}, .bodies = host_double.bodies};

class CudaProgrammaticTest : public CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    if (device_ && !device_->target().launches_programmatically) GTEST_SKIP() << "it takes compute capability 9.0";
  }
  // An op with two kernels, launched as a plan may say.
  void call_so(Stream& stream, float* x, ProgrammaticLaunch programmatic = ProgrammaticLaunch::all,
               const OpDef& op = waits_for_inputs) {
    (void)node(op, {x});
    nodes_.back().bound.programmatic = programmatic;
    device_->call(stream, nodes_.back().bound);
  }
  int programmatic_edges(const std::function<void(Stream&)>& issue) {
    return capture(issue)->info().programmatic_edges;
  }
};

TEST_F(CudaProgrammaticTest, EveryKernelBehindAnother) {
  float* x = make(1.0f);
  auto captured = capture([&](Stream& s) {
    for (int i = 0; i < 3; ++i) call_so(s, x);
  });
  EXPECT_EQ(captured->info().kernels, 6);
  EXPECT_EQ(captured->info().edges, 5);
  EXPECT_EQ(captured->info().programmatic_edges, 5);
  device_->launch(*stream_, *captured);
  EXPECT_EQ(get(x), 22.0f);
  device_->launch(*stream_, *captured);
  EXPECT_EQ(get(x), 190.0f);
}

TEST_F(CudaProgrammaticTest, AsThePlanSays) {
  float* x = make(1.0f);
  for (auto [programmatic, edges] :
       {std::pair{ProgrammaticLaunch::none, 0}, {ProgrammaticLaunch::all_but_first, 3}, {ProgrammaticLaunch::all, 5}}) {
    EXPECT_EQ(edges, programmatic_edges([&, how = programmatic](Stream& s) {
                for (int i = 0; i < 3; ++i) call_so(s, x, how);
              }));
  }
}

// Whatever the plan says: several of its streams may be captured as one.
TEST_F(CudaProgrammaticTest, NotBehindOtherWork) {
  float *x = make(1.0f), *y = make(1.0f);
  bool* flag = make(true);
  HostStatus status;
  const std::function<void(Stream&)> others[] = {
      [&](Stream& s) { device_->copy(s, y, x, sizeof(float)); },
      [&](Stream& s) { call(s, affine, {x}); },  // its kernel need not wait for anything
      [&](Stream& s) {
        branch(
            s, flag, [](Stream&) {}, [](Stream&) {});
      },
      [&](Stream& s) {
        device_->call(s, host_node(host_double_of_kernels, {x, y}, status));
      },
  };
  for (const auto& other : others) {
    EXPECT_EQ(2, programmatic_edges([&](Stream& s) {
                call_so(s, x);
                other(s);
                call_so(s, x);
              }));
  }
}

TEST_F(CudaProgrammaticTest, NotWhereStreamsJoin) {
  auto beside = device_->make_stream();
  float *x = make(1.0f), *y = make(1.0f);
  Stream* const streams[] = {stream_.get(), beside.get()};
  auto captured = capture(streams, [&](Streams s) {
    call_so(*s[0], x);
    device_->make_wait(*s[1], *s[0]);
    call_so(*s[1], y);  // behind one kernel, but of another stream
    call_so(*s[0], x);  // behind the first, as is y
    device_->make_wait(*s[0], *s[1]);
    call_so(*s[0], x);  // behind both
    call_so(*s[0], x);  // behind that alone
  });
  EXPECT_EQ(captured->info().edges, 10);
  EXPECT_EQ(captured->info().programmatic_edges, 7);
  device_->launch(*stream_, *captured);
  EXPECT_EQ(get(x), 46.0f);
  EXPECT_EQ(get(y), 4.0f);
}

TEST_F(CudaProgrammaticTest, InTheBodyOfALoop) {
  float* x = make(1.0f);
  std::int32_t* left = make(2);
  bool* more = make(false);
  auto captured = capture([&](Stream& s) {
    call(s, is_positive, {left, more});
    loop(s, more, [&](Stream& body) {
      call_so(body, x);
      call_so(body, x);
      call(body, count_down, {left});
      call(body, is_positive, {left, more});
    });
  });
  EXPECT_EQ(captured->info().programmatic_edges, 3);
  device_->launch(*stream_, *captured);
  EXPECT_EQ(get(x), 46.0f);
}

TEST_F(CudaProgrammaticTest, AnExecutableGraphIsUpdated) {
  float *x = make(1.0f), *y = make(1.0f);
  Stream* const streams[] = {stream_.get()};
  std::unique_ptr<CapturedGraph> graph;
  const auto capture_again = [&](float* target, ProgrammaticLaunch programmatic) {
    device_->begin_capture(streams);
    call_so(*stream_, target, programmatic);
    call_so(*stream_, target, programmatic);
    graph = device_->end_capture(streams, std::move(graph));
    device_->launch(*stream_, *graph);
  };
  capture_again(x, ProgrammaticLaunch::all);
  capture_again(y, ProgrammaticLaunch::all);
  EXPECT_EQ(device_->counters().graph_updates, 1u);
  EXPECT_EQ(get(x), 10.0f);
  EXPECT_EQ(get(y), 10.0f);
  // Another kind of edges: not tried.
  capture_again(y, ProgrammaticLaunch::none);
  EXPECT_EQ(device_->counters().graph_updates, 1u);
  EXPECT_EQ(device_->counters().graph_update_refusals, 0u);
  EXPECT_EQ(get(y), 46.0f);
}

#ifdef GRAPHSINK_EMULATED
// What is issued op by op is launched as usual, so the mistake does not show.
TEST_F(CudaProgrammaticTest, AKernelThatDoesNotWaitIsFoundInACapturedGraph) {
  float* x = make(1.0f);
  auto issue = [&](Stream& s) { call_so(s, x, ProgrammaticLaunch::all, claims_to_wait); };
  issue(*stream_);
  EXPECT_EQ(get(x), 4.0f);
  auto captured = capture(issue);
  device_->launch(*stream_, *captured);
  EXPECT_THROW(device_->wait(*stream_), Error);
  EXPECT_NE(emu::last_failure().find("cudaGridDependencySynchronize"), std::string::npos) << emu::last_failure();
  emu::reset();
}
#endif

}  // namespace
}  // namespace graphsink::testing::cuda_programmatic_test
