// StreamLoader in a build without CUDA.
#include "graphsink/stream_loader.h"

#include <gtest/gtest.h>

#include "messages.h"

#ifndef GRAPHSINK_CUDA
namespace graphsink::stream_loader_test {
namespace {

using testing::contains;

TEST(StreamLoaderWithoutCuda, SaysSoAtOnceAndNamesTheLine) {
  const int line = __LINE__ + 2;
  try {
    StreamLoader loader(nullptr, index_source(8), sample_order(8, {.batch = 2}));
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unavailable);
    const std::string message = e.what();
    EXPECT_TRUE(contains(message, "stream_loader_test.cpp:" + std::to_string(line))) << message;
    EXPECT_TRUE(contains(message, "this build of graphsink has no CUDA")) << message;
    EXPECT_TRUE(contains(message, "feed a Program by a Loader")) << message;
  }
}

}  // namespace
}  // namespace graphsink::stream_loader_test
#endif
