// While somebody else captures, in each mode, on the same thread or on another, the library does everything that it can
// do. It makes no call that CUDA forbids then: the other capture ends well, with what was given to it and nothing else.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <thread>

#include "fault_harness.h"
#include "graphsink/capture.h"
#include "guest_kernels.h"
#include "messages.h"
#include "phases.h"

namespace graphsink::testing::foreign_capture_test {
namespace {

struct Foreign {
  cudaStreamCaptureMode mode;
  bool on_this_thread;
};
constexpr Foreign kForeign[] = {
    {cudaStreamCaptureModeGlobal, false},     {cudaStreamCaptureModeThreadLocal, false},
    {cudaStreamCaptureModeRelaxed, false},    {cudaStreamCaptureModeGlobal, true},
    {cudaStreamCaptureModeThreadLocal, true}, {cudaStreamCaptureModeRelaxed, true},
};
std::string name_of(const Foreign& foreign) {
  constexpr const char* kModes[] = {"global", "thread-local", "relaxed"};
  return std::string("beside a ") + kModes[foreign.mode] + " capture of " +
         (foreign.on_this_thread ? "this thread" : "another thread");
}

// A capture of one kernel, from the constructor to end().
class ForeignCapture {
 public:
  explicit ForeignCapture(const Foreign& foreign) : foreign_(foreign) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&sum_), sizeof(int)), cudaSuccess);
    if (foreign.on_this_thread) {
      begin();
      return;
    }
    int device = 0;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    other_ = std::thread([&, may_end = may_end_.get_future()] {
      EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
      begin();
      begun_.set_value();
      may_end.wait();
      finish();
    });
    begun_.get_future().wait();
  }
  // Of a test that was left by an exception.
  ~ForeignCapture() {
    if (!other_.joinable()) return;
    may_end_.set_value();
    other_.join();
  }
  ForeignCapture(const ForeignCapture&) = delete;
  ForeignCapture& operator=(const ForeignCapture&) = delete;

  // Ends the capture, and says what has become of it.
  void end() {
    if (foreign_.on_this_thread) {
      finish();
    } else {
      may_end_.set_value();
      other_.join();
    }
    EXPECT_EQ(code_, cudaSuccess) << cudaGetErrorName(code_);
    EXPECT_EQ(nodes_, 1u);
    EXPECT_EQ(cudaFree(sum_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

 private:
  void begin() {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, foreign_.mode), cudaSuccess);
    guest_add(stream_, sum_, 1);
  }
  void finish() {
    cudaGraph_t graph = nullptr;
    code_ = cudaStreamEndCapture(stream_, &graph);
    if (code_ != cudaSuccess) {
      (void)cudaGetLastError();
      return;
    }
    EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes_), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }

  Foreign foreign_;
  cudaStream_t stream_ = nullptr;
  int* sum_ = nullptr;
  std::promise<void> begun_, may_end_;
  std::thread other_;
  cudaError_t code_ = cudaSuccess;
  std::size_t nodes_ = 0;
};

class BesideCapture : public ::testing::Test {
 protected:
  BesideCapture() { emu::reset(); }
  ~BesideCapture() override {
    emu::set_device_count(1);
    cudaSetDevice(0);
    emu::reset();
  }
  LogText log_;
};

// What the phases of a program's life leave out.
const Phase kFurtherPhases[] = {
    {"op times", reach_capture, [](std::optional<Session>& s) { (void)s->program->time_ops(2); },
     [](const Workload& w) { return w.further_devices.empty(); }},
    {"steps", reach_capture, [](std::optional<Session>& s) { (void)s->program->steps(); }},
    {"shapes that go",
     [](Session& s) {
       reach_first_run(s);
       s.run(interactive);
       s.feed(1);
       s.run(sink);
     },
     [](std::optional<Session>& s) {
       for (int step : {kSecondShape, 0, kSecondShape, 1}) {
         s->feed(step);
         s->run(interactive);
         s->feed(step);
         s->run(sink);
       }
     },
     [](const Workload& w) { return w.has_open_shape; }},
    {"a capture that fails", reach_capture,
     [](std::optional<Session>& s) {
       emu::fail("cudaGraphInstantiateWithParams", 1, cudaErrorMemoryAllocation);
       s->run(sink);
     }},
    {"a step that fails", reach_capture,
     [](std::optional<Session>& s) {
       emu::fail("cudaLaunchKernelExC", 1, cudaErrorLaunchOutOfResources);
       EXPECT_THROW(s->run(interactive), Error);
       emu::clear_faults();
       s->program->sync();
     }},
    {"the end, where waiting fails",
     [](Session& s) {
       reach_capture(s);
       s.program->run(sink);
     },
     [](std::optional<Session>& s) {
       emu::fail("cudaStreamSynchronize", 1, cudaErrorUnknown, true);
       s.reset();
     }},
};

void act_beside_a_capture(Workload (*make)(), const Phase& phase, const Foreign& foreign) {
  const emu::LiveObjects before = emu::live_objects();
  std::optional<Session> session(make());
  SCOPED_TRACE(session->work.name + ", " + std::string(phase.name) + ", " + name_of(foreign));
  emu::set_device_count(session->work.devices);
  cudaSetDevice(session->work.devices - 1);
  phase.reach(*session);
  std::shared_ptr<void> callers = session->callers;  // freed after the capture: it is not the library that frees it
  ForeignCapture capture(foreign);
  EXPECT_NO_THROW(phase.act(session));
  emu::clear_faults();
  session.reset();  // beside the capture, too
  capture.end();
  callers.reset();
  EXPECT_EQ(leak(before, emu::live_objects(), {}), "");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

class ProgramBesideCapture : public BesideCapture, public ::testing::WithParamInterface<NamedWorkload> {};
TEST_P(ProgramBesideCapture, EveryPhase) {
  auto act = [](const Phase& phase) {
    if (!phase.is_in(GetParam().make())) return;
    for (const Foreign& foreign : kForeign) act_beside_a_capture(GetParam().make, phase, foreign);
  };
  for (const Phase& phase : kPhases) act(phase);
  for (const Phase& phase : kFurtherPhases) act(phase);
}
INSTANTIATE_TEST_SUITE_P(Workloads, ProgramBesideCapture, ::testing::ValuesIn(kWorkloads),
                         [](const auto& info) { return std::string(info.param.name); });

class SinkBesideCapture : public BesideCapture, public ::testing::WithParamInterface<Foreign> {};

// Warm runs, captures, launches, updates, checks, evictions, loops, captures that fail, and the end.
TEST_P(SinkBesideCapture, EverythingThatACacheDoes) {
  cudaStream_t stream = nullptr;
  int* sum = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&sum), 2 * sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaMemset(sum, 0, 2 * sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const emu::LiveObjects before = emu::live_objects();
  ForeignCapture capture(GetParam());
  {
    SinkCache sinks({.max_bytes = 260 << 10, .check_every = 1});
    auto add = [&](cudaStream_t s) { guest_add(s, sum, 1); };
    for (int i = 0; i < 3; ++i) sinks.run(stream, Key{"named"}, add);
    sinks.write_node_names("/dev/null");  // of the first graph, which is not an update of another
    for (int i = 0; i < 15; ++i) {
      sinks.run(stream, Key{i / 3}, add);
      if (i % 3 != 2) continue;
      // Ends what is in flight, as a caller may while others capture.
      cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
      ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    }
    for (int steps : {1, 2, 3}) sinks.run(stream, Key{"loop"}, add, {.steps = steps});
    for (int i = 0; i < 5; ++i) {
      sinks.run(stream, Key{"throws"}, [&](cudaStream_t s) {
        add(s);
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        ASSERT_EQ(cudaStreamIsCapturing(s, &status), cudaSuccess);
        if (status != cudaStreamCaptureStatusNone) throw std::runtime_error("not while it captures");
      });
    }
    EXPECT_GT(sinks.report().updates, 0u) << sinks.report();
    EXPECT_GT(sinks.report().evictions, 0u) << sinks.report();
    EXPECT_GT(sinks.report().checks, 0u) << sinks.report();
    EXPECT_GT(sinks.report().loops, 0u) << sinks.report();
    EXPECT_EQ(sinks.report().failures.size(), 1u) << sinks.report();
    sinks.clear();
    for (int i = 0; i < 3; ++i) sinks.run(stream, Key{"last"}, add, {.steps = 2});
  }
  capture.end();
  EXPECT_EQ(leak(before, emu::live_objects(), {}), "");
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  int value = 0;
  ASSERT_EQ(cudaMemcpy(&value, sum, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(value, 3 + 15 + 6 + 5 + 6);
  EXPECT_EQ(cudaFree(sum), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}
INSTANTIATE_TEST_SUITE_P(Modes, SinkBesideCapture, ::testing::ValuesIn(kForeign), [](const auto& info) {
  std::string name = name_of(info.param).substr(std::string("beside a ").size());
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
  return name;
});

}  // namespace
}  // namespace graphsink::testing::foreign_capture_test
