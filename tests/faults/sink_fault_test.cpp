// Every CUDA call that a SinkCache makes fails, once and for ever, and as an error that ends the context: each call of
// run() does its work once or, where even the state of the stream or its device is not known, throws and has done
// nothing; nothing leaks, and the cache works afterwards.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "fault_harness.h"
#include "graphsink/capture.h"
#include "guest_kernels.h"
#include "messages.h"

namespace graphsink::testing {

extern const char* const cuda_libraries;  // files, with colons between them
extern const char* const sink_libraries;  // likewise

namespace sink_fault_test {
namespace {

constexpr int kSteps = 15 + 6 + 1 + 2 + 3;  // that run() does

class SinkFaults : public ::testing::Test {
 protected:
  void TearDown() override {
    emu::reset();
    emu::release_memory();
  }

  void make_memory() {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&sum_), 3 * sizeof(int)), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaMemset(sum_, 0, sizeof(int)), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  void free_memory() {
    EXPECT_EQ(cudaFree(sum_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }
  int sum() {
    int value = 0;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(&value, sum_, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
    return value;
  }

  // Warm runs, captures, updates, launches, checks, evictions and loops: 6 keys, with room for 2 graphs. Every node
  // that can be read back is there.
  void run(SinkCache& sinks) {
    for (int i = 0; i < 15; ++i) {
      run_once(sinks, Key{i / 3}, 1, [&](cudaStream_t s) {
        guest_add(s, sum_, 1);
        (void)cudaMemsetAsync(sum_ + 1, 0, sizeof(int), s);
        (void)cudaMemcpyAsync(sum_ + 2, sum_, sizeof(int), cudaMemcpyDeviceToDevice, s);
        (void)cudaLaunchHostFunc(
            s, [](void*) {}, nullptr);
      });
      if (i % 3 == 2) wait();
    }
    for (int i = 0; i < 6; ++i) {
      run_once(sinks, Key{"memory and events"}, 1, [&](cudaStream_t s) {
        void* memory = nullptr;
        (void)cudaMallocAsync(&memory, 16, s);
        guest_add(s, sum_, 1);
        (void)cudaFreeAsync(memory, s);
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        if (cudaStreamIsCapturing(s, &status) != cudaSuccess) (void)cudaGetLastError();
        if (status == cudaStreamCaptureStatusNone) return;
        (void)cudaEventRecordWithFlags(event_, s, cudaEventRecordExternal);
        (void)cudaStreamWaitEvent(s, event_, cudaEventWaitExternal);
      });
    }
    for (int steps : {1, 2, 3}) {
      run_once(sinks, Key{"loop"}, steps, [&](cudaStream_t s) { guest_add(s, sum_, 1); });
    }
    wait();
  }
  template <class Work>
  void run_once(SinkCache& sinks, const Key& key, int steps, const Work& work) {
    try {
      sinks.run(stream_, key, work, {.steps = steps});
    } catch (const Error& e) {
      const bool is_unknown = contains(e.what(), "cudaStreamIsCapturing returned") ||
                              contains(e.what(), "cudaStreamGetDevice returned") ||
                              contains(e.what(), "cudaGetDeviceCount returned");
      EXPECT_TRUE(is_unknown) << e.what();
      emu::clear_faults();
      sinks.run(stream_, key, work, {.steps = steps});
    }
  }
  // Ends what is in flight, by a call that a SinkCache does not make.
  void wait() { (void)cudaDeviceSynchronize(); }
  SinkOptions options() { return {.max_bytes = 275 << 10, .check_every = 2}; }

  // The function fails at its nth call, or at all from the nth on.
  void run_case(const std::string& function, int nth, cudaError_t code, bool for_ever) {
    SCOPED_TRACE(function + ", call " + std::to_string(nth) + (for_ever ? ", for ever" : "") + ", " +
                 cudaGetErrorName(code));
    watchdog_.begin(function);
    make_memory();
    const emu::LiveObjects before = emu::live_objects();
    FaultCounts injected;
    {
      SinkCache sinks(options());
      emu::reset_calls();
      emu::fail(function, nth, code, for_ever);
      run(sinks);
      injected = emu::injected();
      emu::clear_faults();
      EXPECT_EQ(cudaGetLastError(), cudaSuccess);
      EXPECT_EQ(sum(), kSteps) << sinks.report();
      sinks.try_again();
      run(sinks);
      EXPECT_EQ(sum(), 2 * kSteps) << sinks.report();
      EXPECT_GT(sinks.report().launches, 0u);
      // Destructors log what fails.
      if (function.find("Destroy") != function.npos || function == "cudaLogsUnregisterCallback" ||
          function == "cudaFree" || function == "cudaEventSynchronize")
        emu::fail(function, 1, code, for_ever);
    }
    for (const auto& [name, count] : emu::injected()) injected[name] = count;
    emu::clear_faults();
    EXPECT_EQ(leak(before, emu::live_objects(), expected_leftover(injected, true)), "");
    free_memory();
    emu::reset();
    emu::release_memory();
  }

  LogText log_;
  Watchdog watchdog_{60};
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  int* sum_ = nullptr;
};

TEST_F(SinkFaults, EveryCall) {
  make_memory();
  emu::reset_calls();
  {
    SinkCache sinks(options());
    run(sinks);
    ASSERT_GT(sinks.report().updates, 0u) << sinks.report();
    ASSERT_GT(sinks.report().evictions, 0u);
  }
  std::set<std::string> functions = called_functions(sink_libraries);
  functions.erase("cudaMemGetInfo");  // see capture/cuda_sink_bound_test.cpp
  // Of the device layer, whatever the run calls, but for what the functions of the test call themselves.
  const std::set<std::string> of_the_test = {"cudaLaunchHostFunc", "cudaLaunchKernelExC", "cudaMemcpyAsync",
                                             "cudaMemsetAsync"};
  for (const std::string& function : called_functions(cuda_libraries))
    if (emu::calls(function) > 0 && !of_the_test.contains(function)) functions.insert(function);
  ASSERT_GT(functions.size(), 25u);
  FaultCounts calls;
  for (const std::string& function : functions) calls[function] = emu::calls(function);
  free_memory();
  for (const auto& [function, count] : calls) {
    EXPECT_GT(count, 0u) << function << " is never called";
    for (int nth = 1; nth <= static_cast<int>(count) && !HasFailure(); ++nth) {
      run_case(function, nth, cudaErrorMemoryAllocation, false);
    }
    if (!HasFailure()) run_case(function, 1, cudaErrorMemoryAllocation, true);
  }
}

TEST_F(SinkFaults, AStreamThatStaysInACaptureIsAnError) {
  make_memory();
  emu::set_destroy_ends_capture(false);
  SinkCache sinks(options());
  auto run_once = [&] { sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, sum_, 1); }); };
  run_once();
  EXPECT_EQ(sum(), 1) << "the warm run";
  emu::fail("cudaStreamEndCapture", 1, cudaErrorMemoryAllocation, true);
  const std::string message = message_of(run_once);
  EXPECT_TRUE(contains(message, "the capture of a stream cannot be ended: cudaStreamEndCapture returned")) << message;
  EXPECT_TRUE(contains(message, "restart the process")) << message;
  emu::reset();
  emu::set_destroy_ends_capture(true);
  EXPECT_EQ(sum(), 1) << "nothing else has run";
  free_memory();
}

TEST_F(SinkFaults, ALostDeviceIsAnError) {
  make_memory();
  for (const char* function :
       {"cudaGraphLaunch", "cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaEventRecord"}) {
    SinkCache sinks(options());
    emu::fail(function, 1, cudaErrorIllegalAddress);
    const std::string message = message_of([&] {
      for (int i = 0; i < 3; ++i) sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, sum_, 1); });
    });
    EXPECT_TRUE(contains(message, "cudaErrorIllegalAddress")) << function << ": " << message;
    emu::reset();
  }
  free_memory();
}

}  // namespace
}  // namespace sink_fault_test
}  // namespace graphsink::testing
