// while_limit: fails the step of a loop that did not end in time.
#include "kernels/runtime/while_limit.h"

#include "kernels/file_ops.h"
#include "kernels/support/kernel.h"

namespace graphsink {
namespace {

__global__ void refuse_more(const bool* is_unfinished, StepBlock* step, int node, std::int64_t iterations) {
  wait_for_inputs();
  if (*is_unfinished) fail_step(step, node, StepError::iterations, iterations);
}

void limit_cuda(CudaArgs& a) {
  a.launch(refuse_more, Extent{}, Extent{}, 0, a.in<bool>(0), a.step(), a.id(), a.attrs<WhileLimitAttrs>().iterations);
}

void limit_cpu(const CpuArgs& a) {
  if (*a.in<bool>(0)) fail_step(a, StepError::iterations, a.attrs<WhileLimitAttrs>().iterations);
}

void infer_limit(InferArgs& a) {
  a.expect_inputs(1);
  if (a.in(0).dtype != DType::boolean || a.in(0).shape.size() != 1) a.fail("takes one bool", "pass the condition");
}

}  // namespace

const OpDef while_limit_op{.name = "while_",  // name of the op in its Error
                           .infer = infer_limit,
                           .traits = {.host_effect = true, .repeatable = true, .kernels_wait = true},
                           .prepare = load_kernels<refuse_more>,
                           .bodies = {limit_cpu, limit_cuda}};

std::span<const FileOp> while_limit_file_ops() {
  static constexpr FileOp ops[] = {{&while_limit_op, attrs_io<WhileLimitAttrs>, 1, "while_limit"}};
  return ops;
}

}  // namespace graphsink
