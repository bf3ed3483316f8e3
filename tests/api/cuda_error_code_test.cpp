// Error::code() of what CUDA calls return.
#ifdef GRAPHSINK_EMULATED

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "emulator.h"
#include "graphsink/graphsink.h"

namespace graphsink::cuda_error_code_test {
namespace {

template <class F>
ErrorCode code_of(F&& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.code();
  }
  ADD_FAILURE() << "no Error";
  return {};
}

TEST(CudaErrorCode, FollowsFromWhatTheCallReturned) {
  struct Row {
    cudaError_t returned;
    ErrorCode code;
  };
  constexpr Row kRows[] = {{cudaErrorMemoryAllocation, ErrorCode::out_of_memory},
                           {cudaErrorNoDevice, ErrorCode::unavailable},
                           {cudaErrorInsufficientDriver, ErrorCode::unavailable},
                           {cudaErrorInvalidValue, ErrorCode::misuse},
                           {cudaErrorIllegalAddress, ErrorCode::device_lost}};
  for (const Row& row : kRows) {
    SCOPED_TRACE(cudaGetErrorName(row.returned));
    {
      Graph g;
      Variable x("x", Tensor({1.0f}));
      assign(x, g.value(x) + 1.0);
      Program program = compile(g, {.target = cuda(0), .log = [](LogLevel, std::string_view) {}});
      emu::fail("cudaStreamCreateWithFlags", 1, row.returned);
      emu::fail("cudaMalloc", 1, row.returned);
      EXPECT_EQ(code_of([&] { program.run(), program.sync(); }), row.code);
      if (row.code == ErrorCode::device_lost) {
        EXPECT_EQ(code_of([&] { program.run(); }), row.code);
      }
    }
    emu::reset();
  }
}

}  // namespace
}  // namespace graphsink::cuda_error_code_test

#endif
