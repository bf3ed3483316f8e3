// The parts of SystemOps that live in other files than system.cu.
#pragma once

#include "graphsink/op.h"

namespace graphsink {

extern const OpDef check_op;               // check_finite.cu
extern const OpDef store_op;               // store.cu
extern const OpDef clear_op, store_at_op;  // stack.cu
extern const OpDef fused_ops[];            // fused.cu
extern const OpDef fused_kernel_ops[];     // fused.cu
extern const OpDef lap_op;                 // lap.cu

// Preparation and body of fused_ops on a CUDA device, in fused_kernel.cu.
Prepared prepare_fused_kernel(const PrepareArgs& p);
void run_fused_kernel(CudaArgs& a);

}  // namespace graphsink
