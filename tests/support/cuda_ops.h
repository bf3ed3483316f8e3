// Ops that copy their operand on the device, and what their traits say, or do not say, of their capture.
#pragma once

#include <cuda_runtime_api.h>

#include "graphsink/cuda.h"
#include "test_ops.h"

namespace graphsink::testing {

inline void copy_on_stream(CudaArgs& a) {
  check_cuda(cudaMemcpyAsync(a.out<void>(0), a.in<void>(0), a.in_type(0).bytes(), cudaMemcpyDefault, a.stream()),
             "cudaMemcpyAsync", a);
}
// Cannot be captured.
inline void copy_and_wait(CudaArgs& a) {
  copy_on_stream(a);
  check_cuda(cudaStreamSynchronize(a.stream()), "cudaStreamSynchronize", a);
}

inline const OpDef waits_op{
    .name = "waits", .infer = infer_like_first, .traits = {.capturable = false}, .bodies = {copy_and_wait}};
inline const OpDef outside_op{
    .name = "outside", .infer = infer_like_first, .traits = {.allowed_in_bodies = false}, .bodies = {copy_on_stream}};
// Does not say that it cannot be captured.
inline const OpDef breaks_op{.name = "breaks", .infer = infer_like_first, .bodies = {copy_and_wait}};

}  // namespace graphsink::testing
