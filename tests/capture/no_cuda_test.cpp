// SinkCache in a build without CUDA.
#ifndef GRAPHSINK_CUDA
#include <gtest/gtest.h>

#include "graphsink/capture.h"
#include "messages.h"

namespace graphsink::testing::no_cuda_test {
namespace {

TEST(SinkCacheWithoutCuda, SaysSoAtOnceAndNamesTheLine) {
  const int line = __LINE__ + 1;
  const std::string message = message_of([] { SinkCache sinks; });
  EXPECT_TRUE(contains(message, "no_cuda_test.cpp:" + std::to_string(line))) << message;
  EXPECT_TRUE(contains(message, "this build of graphsink has no CUDA")) << message;
  EXPECT_TRUE(contains(message, "GRAPHSINK_FLAVOUR=cuda")) << message;
}

}  // namespace
}  // namespace graphsink::testing::no_cuda_test
#endif
