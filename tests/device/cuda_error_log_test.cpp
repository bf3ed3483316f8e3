// What is read from CUDA's error log. The messages of the first form are those of a driver of CUDA 13.0 on an H100.
#include "device/cuda/error_log.h"

#include <gtest/gtest.h>

namespace graphsink::cuda_error_log_test {
namespace {

using Messages = std::vector<std::string>;

std::string cause_of(const Messages& messages, cudaError_t last = cudaErrorStreamCaptureInvalidated) {
  const std::vector<LoggedFailure> failures = read_error_log(messages);
  const LoggedFailure* cause = find_cause(failures, last);
  return cause ? cause->to_string() : "";
}

constexpr const char *kConflict = "API call conflicts with a stream capture sequence initiated from the calling thread",
                     *kBroken = "Capture was invalidated by a prior API call",
                     *kEnd = "Returning 901 (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) from cuStreamEndCapture";

TEST(ErrorLogText, AnExplanationBelongsToTheCallBehindIt) {
  EXPECT_EQ(
      cause_of({kConflict, "Returning 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) from cuMemAlloc_v2", kBroken, kEnd}),
      std::string("cuMemAlloc returned CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (") + kConflict + ")");
}

TEST(ErrorLogText, WithoutAnExplanationTheCodeIsExplained) {
  EXPECT_EQ(cause_of({"Returning 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) from cuStreamQuery", kBroken, kEnd}),
            std::string("cuStreamQuery returned CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (") +
                cudaGetErrorString(cudaErrorStreamCaptureUnsupported) + ")");
}

TEST(ErrorLogText, TheFormOfTheProgrammingGuide) {
  EXPECT_EQ(cause_of({"[12:30:01.123][4711][CUDA][E][cudaMalloc] it is not permitted\n"}),
            "cudaMalloc: it is not permitted");
}

TEST(ErrorLogText, FieldsInFrontOfAMessageAreNoPartOfIt) {
  EXPECT_EQ(cause_of({"[12:30:01.123][4711][CUDA][E] why\n",
                      "[12:30:01.123][4711][CUDA][E] Returning 906 (CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) from "
                      "cuMemcpyDtoH_v2\n"}),
            "cuMemcpyDtoH returned CUDA_ERROR_STREAM_CAPTURE_IMPLICIT (why)");
}

TEST(ErrorLogText, WhatALibraryTriesOutIsNotTheCause) {
  EXPECT_EQ(cause_of({"paramIndex 3 outside of kernel parameter count 3",
                      "Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuFuncGetParamInfo", kConflict,
                      "Returning 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) from cuMemFree_v2", kBroken, kEnd}),
            std::string("cuMemFree returned CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (") + kConflict + ")");
}

TEST(ErrorLogText, OtherErrorsThatBreakACaptureStandInFrontOfTheFirstCallThatFindsItBroken) {
  const char* why =
      "One or more of block dimensions of (4096,1,1) exceeds correspsonding maximum value of (1024,1024,64)";
  EXPECT_EQ(cause_of({"Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuFuncGetParamInfo", why,
                      "Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuLaunchKernelEx",
                      "Returning 901 (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) from cuEventRecord", kBroken, kEnd}),
            std::string("cuLaunchKernelEx returned CUDA_ERROR_INVALID_VALUE (") + why + ")");
}

TEST(ErrorLogText, AFailureThatBreaksNothingIsTheOneOfTheLastError) {
  const Messages messages = {"Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuFuncGetParamInfo",
                             "Returning 401 (CUDA_ERROR_ILLEGAL_STATE) from cuStreamBeginCapture_v2"};
  EXPECT_EQ(cause_of(messages, cudaErrorIllegalState).find("cuStreamBeginCapture returned CUDA_ERROR_ILLEGAL_STATE ("),
            0u);
  EXPECT_EQ(cause_of(messages, cudaSuccess).find("cuFuncGetParamInfo returned CUDA_ERROR_INVALID_VALUE ("), 0u);
}

TEST(ErrorLogText, WhatOnlyFollowsABrokenCaptureIsNoCause) {
  EXPECT_EQ(cause_of({kBroken, kEnd}), "") << "another thread broke it";
  EXPECT_EQ(cause_of({}), "");
}

TEST(ErrorLogText, MessagesThatAreNotUnderstoodAreKept) {
  EXPECT_EQ(cause_of({"Returning many from nowhere"}), "Returning many from nowhere");
}

}  // namespace
}  // namespace graphsink::cuda_error_log_test
