// SinkCache on a device that is lost and on a stream that is gone: Error with the first cause, and nothing runs.
#include "guest_fixture.h"

#ifdef GRAPHSINK_EMULATED
namespace graphsink::testing::cuda_sink_unusable_test {
namespace {

class SinkCacheUnusable : public Guest {
 protected:
  // What run() throws; the function must not be called.
  std::string refusal(SinkCache& sinks, cudaStream_t stream, int key) {
    return message_of([&] { sinks.run(stream, Key{key}, [](cudaStream_t) { ADD_FAILURE() << "was called"; }); });
  }
};

// The context ends outside of the cache, as by an illegal address in a kernel of the caller's.
TEST_F(SinkCacheUnusable, ALostDeviceIsAnErrorEachTime) {
  for (bool strict : {false, true}) {
    for (int warm : {0, 1, 5}) {
      SCOPED_TRACE(std::to_string(warm) + " calls before");
      messages_.clear();
      {
        SinkCache sinks(logged({.strict = strict}));
        for (int i = 0; i < warm; ++i)
          sinks.run(stream_, Key{i % 2}, [&](cudaStream_t s) { guest_add(s, sums_[0], 1); });
        emu::fail("cudaStreamSynchronize", 1, cudaErrorIllegalAddress);
        EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
        for (int key : {0, 1, 2, 0}) {
          const std::string message = refusal(sinks, stream_, key);
          EXPECT_TRUE(contains(message, "the device is lost: cudaStreamIsCapturing returned cudaErrorIllegalAddress"))
              << message;
          EXPECT_TRUE(contains(message, "cuda_sink_unusable_test.cpp")) << message;
          EXPECT_TRUE(contains(message, "remedy: restart the process")) << message;
        }
        EXPECT_EQ(sinks.report().inside, 0u);
      }
      EXPECT_TRUE(messages_.empty()) << messages_.front();
      emu::reset();
    }
  }
}

// The launch of the cache finds it.
TEST_F(SinkCacheUnusable, TheFirstFailureIsNamedEachTime) {
  {
    SinkCache sinks(logged());
    auto step = [&] { sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, sums_[0], 1); }); };
    for (int i = 0; i < 3; ++i) step();
    emu::fail("cudaGraphLaunch", 1, cudaErrorLaunchFailure);
    EXPECT_TRUE(contains(message_of(step), "cudaGraphLaunch returned cudaErrorLaunchFailure"));
    for (int i = 0; i < 3; ++i) {
      const std::string message = refusal(sinks, stream_, i);
      EXPECT_TRUE(contains(message, "the device is lost: cudaGraphLaunch returned cudaErrorLaunchFailure")) << message;
      EXPECT_TRUE(contains(message, "cuda_sink_unusable_test.cpp")) << message;
    }
  }
  EXPECT_TRUE(messages_.empty()) << messages_.front();
  emu::reset();
}

// One message in the Error, and none for each object that cannot be destroyed any more.
TEST_F(SinkCacheUnusable, WhatEndedWithTheContextIsNotLogged) {
  {
    SinkCache sinks(logged());
    auto step = [&](int key) { sinks.run(stream_, Key{key}, [&](cudaStream_t s) { guest_add(s, sums_[0], 1); }); };
    for (int i = 0; i < 30; ++i) step(i % 10);
    emu::fail("cudaGraphLaunch", 1, cudaErrorLaunchFailure);
    EXPECT_TRUE(contains(message_of([&] { step(0); }), "cudaGraphLaunch returned cudaErrorLaunchFailure"));
  }
  EXPECT_TRUE(messages_.empty()) << messages_.size() << " messages, the first: " << messages_.front();
  emu::reset();
}

TEST_F(SinkCacheUnusable, AStreamThatIsGoneIsAnError) {
  cudaStream_t gone = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(gone), cudaSuccess);
  SinkCache sinks(logged());
  for (int i = 0; i < 3; ++i) {
    const std::string message = refusal(sinks, gone, 0);
    EXPECT_TRUE(contains(message, "cudaStreamIsCapturing returned cudaErrorInvalidResourceHandle")) << message;
    EXPECT_TRUE(contains(message, "remedy: pass streams and events that exist")) << message;
  }
  EXPECT_TRUE(messages_.empty()) << messages_.front();
  sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, sums_[0], 1); });
  EXPECT_EQ(read(sums_[0]), 1);
}

}  // namespace
}  // namespace graphsink::testing::cuda_sink_unusable_test
#endif
