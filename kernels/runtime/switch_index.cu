// switch_index: fails the step of a switch_ whose index is the number of none of its bodies.
#include "kernels/runtime/switch_index.h"

#include "kernels/file_ops.h"
#include "kernels/support/kernel.h"

namespace graphsink {
namespace {

template <class T>
__global__ void check_index(const T* index, std::int32_t* checked, StepBlock* step, int node, std::int64_t bodies) {
  wait_for_inputs();
  const std::int64_t chosen = *index;
  const bool is_body = 0 <= chosen && chosen < bodies;
  *checked = is_body ? static_cast<std::int32_t>(chosen) : 0;
  if (!is_body) fail_step(step, node, StepError::body, chosen);
}

template <class Body>
void for_index(DType dtype, const Body& body) {
  for_dtype<std::int32_t, std::int64_t, std::uint8_t>(dtype, body);
}

void index_cuda(CudaArgs& a) {
  for_index(a.in_type(0).dtype, [&]<class T>() {
    a.launch(check_index<T>, Extent{}, Extent{}, 0, a.in<T>(0), a.out<std::int32_t>(0), a.step(), a.id(),
             a.attrs<SwitchIndexAttrs>().bodies);
  });
}

void index_cpu(const CpuArgs& a) {
  std::int64_t chosen = 0;
  for_index(a.in_type(0).dtype, [&]<class T>() { chosen = *a.in<T>(0); });
  const bool is_body = 0 <= chosen && chosen < a.attrs<SwitchIndexAttrs>().bodies;
  *a.out<std::int32_t>(0) = is_body ? static_cast<std::int32_t>(chosen) : 0;
  if (!is_body) fail_step(a, StepError::body, chosen);
}

void infer_index(InferArgs& a) {
  a.expect_inputs(1);
  const TensorType& index = a.in(0);
  const bool is_integer = index.dtype == DType::i32 || index.dtype == DType::i64 || index.dtype == DType::u8;
  if (!is_integer || index.shape.has_open() || index.shape.size() != 1)
    a.fail("the index is " + to_string(index) + ", not one i32, i64 or u8",
           is_integer ? "reduce it" : "compute an integer, for example with argmax(), or cast() it");
  if (a.attrs<SwitchIndexAttrs>().bodies < 1) a.fail("has no bodies", "give it one at least");
  a.out(DType::i32, {});
}

}  // namespace

const OpDef switch_index_op{
    .name = "switch_",  // name of the op in its Error
    .infer = infer_index,
    .traits = {.kernels_wait = true},
    .prepare = load_kernels<check_index<std::int32_t>, check_index<std::int64_t>, check_index<std::uint8_t>>,
    .bodies = {index_cpu, index_cuda}};

std::span<const FileOp> switch_index_file_ops() {
  static constexpr FileOp ops[] = {{&switch_index_op, attrs_io<SwitchIndexAttrs>, 1, "switch_index"}};
  return ops;
}

}  // namespace graphsink
