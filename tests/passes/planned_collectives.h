// Ops that stand for the collectives of ranks.h, which the planner does not know. They are only planned: their bodies
// never run.
#pragma once

#include <cstdint>

#include "graphsink/cuda.h"
#include "graphsink/graphsink.h"
#include "ir/step_state.h"
#include "test_ops.h"

namespace graphsink::testing {

inline void no_body(const CpuArgs&) {}
inline void no_cuda_body(CudaArgs&) {}
// The step blocks of four ranks.
inline void infer_blocks(InferArgs& a) { a.out(DType::u8, {4 * static_cast<std::int64_t>(sizeof(StepState))}); }

// Values cross the host, where the ranks agree as well.
inline const OpDef agree_op{.name = "agree", .traits = {.host_effect = true}, .bodies = {no_body}};
inline const OpDef exchange_op{.name = "exchange",
                               .infer = infer_like_first,
                               .traits = {.host_effect = true, .agree = &agree_op},
                               .bodies = {no_body}};

// With a CUDA body they stay on the device, where the ranks agree as well.
inline const OpDef agree_there_op{
    .name = "agree", .infer = infer_blocks, .traits = {.host_effect = true}, .bodies = {no_body, no_cuda_body}};
inline const OpDef exchange_there_op{
    .name = "exchange",
    .infer = infer_like_first,
    .traits = {.host_effect = true, .allowed_in_bodies = false, .agree = &agree_there_op},
    .bodies = {no_body, no_cuda_body}};

}  // namespace graphsink::testing
