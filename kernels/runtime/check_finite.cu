// check_finite, and the check that compile(.check_finite) puts behind every op: both fail the step.
#include "graphsink/ops.h"
#include "ir/system_ops.h"
#include "kernels/file_ops.h"
#include "kernels/runtime/system_parts.h"
#include "kernels/support/dtype.h"

namespace graphsink {
namespace {

template <class T>
__global__ void find_non_finite(const T* x, std::int64_t size, StepBlock* step, int node) {
  wait_for_inputs();
  std::int64_t bad = -1;
  for (std::int64_t i = thread_index(); i < size; i += all_threads())
    if (bad < 0 && !math::is_finite(x[i])) bad = i;
  if (bad >= 0) fail_step(step, node, StepError::not_finite, bad);
}

template <class T>
void check_on(CudaArgs& a, int node) {
  std::int64_t size = a.in_type(0).shape.size();
  a.launch(find_non_finite<T>, launch_size(size), a.in<T>(0), size, a.step(), node);
}

template <class T>
void check_on(const CpuArgs& a, int node) {
  const T* x = a.in<T>(0);
  const T* end = x + a.in_type(0).shape.size();
  const T* bad = std::find_if_not(x, end, math::is_finite<T>);
  if (bad != end) fail_step(a, node, StepError::not_finite, bad - x);
}

template <class Args>
void check_any(Args& a, int node) {
  for_dtype<float, double, half, bfloat16>(a.in_type(0).dtype, [&]<class T>() { check_on<T>(a, node); });
}
template <class Args>
void check_itself(Args& a) {
  check_any(a, a.id());
}
template <class Args>
void check_other(Args& a) {
  check_any(a, a.template attrs<NodeAttrs>().id);
}

void infer_check_finite(InferArgs& a) {
  a.expect_inputs(1);
  if (!is_float(a.in(0).dtype)) a.fail("takes f32, f64, f16, bf16", "leave it out: integers are finite");
  a.out(a.in(0).dtype, a.in(0).shape);
}
void infer_check(InferArgs& a) { a.expect_inputs(1); }

std::vector<Value> check_finite_grad(const GradArgs& a) { return {a.grads[0]}; }

constexpr auto* kLoad =
    load_kernels<find_non_finite<float>, find_non_finite<double>, find_non_finite<half>, find_non_finite<bfloat16>>;
constexpr Alias kView[] = {{0, 0}};

const OpDef check_finite_op{.name = "check_finite",
                            .infer = infer_check_finite,
                            .views = kView,
                            .traits = {.host_effect = true, .repeatable = true, .kernels_wait = true},
                            .prepare = kLoad,
                            .bodies = {check_itself<const CpuArgs>, check_itself<CudaArgs>},
                            .grad = check_finite_grad};

}  // namespace

const OpDef check_op{.name = "check",
                     .infer = infer_check,
                     .traits = {.host_effect = true, .repeatable = true, .kernels_wait = true},
                     .prepare = kLoad,
                     .bodies = {check_other<const CpuArgs>, check_other<CudaArgs>}};

Value check_finite(Arg x, Placement placement) { return emit(check_finite_op, {x}, {}, placement)[0]; }

std::span<const FileOp> check_finite_file_ops() {
  static constexpr FileOp ops[] = {file_op(check_finite_op)};
  return ops;
}

}  // namespace graphsink
