// switch_index: fails the step of a switch_ whose index is the number of none of its bodies.
#include "kernels/runtime/switch_index.h"

#include "kernels/support/kernel.h"

namespace graphsink {
namespace {

__global__ void check_index(const std::int32_t* index, std::int32_t* checked, StepBlock* step, int node,
                            std::int64_t bodies) {
  wait_for_inputs();
  const bool is_body = 0 <= *index && *index < bodies;
  *checked = is_body ? *index : 0;
  if (!is_body) fail_step(step, node, StepError::body, *index);
}

void index_cuda(CudaArgs& a) {
  a.launch(check_index, Extent{}, Extent{}, 0, a.in<std::int32_t>(0), a.out<std::int32_t>(0), a.step(), a.node().id,
           a.attrs<SwitchIndexAttrs>().bodies);
}

void index_cpu(const CpuArgs& a) {
  const std::int32_t index = *a.in<std::int32_t>(0);
  const bool is_body = 0 <= index && index < a.attrs<SwitchIndexAttrs>().bodies;
  *a.out<std::int32_t>(0) = is_body ? index : 0;
  if (!is_body) fail_step(a, StepError::body, index);
}

void infer_index(InferArgs& a) {
  a.expect_inputs(1);
  const TensorType& index = a.in(0);
  if (index.dtype != DType::i32 || index.shape.has_open() || index.shape.size() != 1)
    a.fail("the index is " + to_string(index) + ", not one i32", "cast() it, or reduce it");
  if (a.attrs<SwitchIndexAttrs>().bodies < 1) a.fail("has no bodies", "give it one at least");
  a.out(DType::i32, {});
}

}  // namespace

const OpDef switch_index_op{.name = "switch_",  // what its Error names
                            .infer = infer_index,
                            .traits = {.kernels_wait = true},
                            .prepare = load_kernels<check_index>,
                            .bodies = {index_cpu, index_cuda}};

}  // namespace graphsink
