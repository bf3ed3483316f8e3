// Collectives of groups whose values NCCL moves on CUDA devices.
#pragma once

#ifdef GRAPHSINK_CUDA
#include "graphsink/cuda.h"
#endif
#include "ranks/collective.h"
#include "ranks/nccl_comm.h"

namespace graphsink {

// OpDef::prepare of collectives that need nothing on the host.
inline Prepared prepare_exchange(const PrepareArgs& p) { return p.cuda ? prepare_nccl(p) : Prepared{}; }

#ifdef GRAPHSINK_CUDA
template <OpBody::Cuda body>
void compared(CudaArgs& a) {
  compare_calls(a);
  body(a);
}

// The same collective with a CUDA body.
template <OpBody::Cuda body>
constexpr OpDef with_nccl(OpDef op) {
  op.bodies = {op.bodies.cpu(), compared<body>};
  op.traits.allowed_in_bodies = false;
  return op;
}
#endif

}  // namespace graphsink
