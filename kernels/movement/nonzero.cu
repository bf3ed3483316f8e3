// nonzero: the places of the elements that are not zero, in ascending order.
#include "kernels/movement/nonzero.h"

#include <limits>

#include "device/device.h"
#include "ir/bound_node.h"
#include "ir/step_state.h"
#include "kernels/file_ops.h"
#include "kernels/support/cub.h"
#include "kernels/support/dtype.h"

namespace graphsink {
namespace {

struct NonzeroPlan {
  std::int64_t size = 0;  // elements of the operand
  std::int64_t rows = 0;
  std::int64_t most_too_few = -1;  // the largest number of elements that belongs to fewer rows
  bool is_bound = false;           // rows are what the user has room for, not what the program planned for
  int axes = 1;                    // numbers in a place, one for each axis; 1 if a place is one number
  std::int64_t dims[Shape::kMaxRank] = {};
  std::size_t select_bytes = 0;  // bytes of the workspace behind the places and their number

  // Part `axis` of a place.
  HD std::int32_t index(std::int64_t place, int axis) const {
    if (axes == 1) return static_cast<std::int32_t>(place);
    for (int d = axes - 1; d > axis; --d) place = quotient(place, dims[d]);
    return static_cast<std::int32_t>(place - quotient(place, dims[axis]) * dims[axis]);
  }
  HD bool has_room(std::int64_t count) const { return count > most_too_few && count <= rows; }
};

// The largest number of elements that the bucket rounds up to less than `rows`, or -1.
std::int64_t most_with_fewer(const Bucket& bucket, std::int64_t rows) {
  std::int64_t below = -1, not_below = rows;
  while (not_below - below > 1) {
    const std::int64_t middle = below + (not_below - below) / 2;
    const std::int64_t rounded = bucket.round_up(middle);
    (rounded >= 0 && rounded < rows ? below : not_below) = middle;
  }
  return below;
}

NonzeroPlan plan_of(const PrepareArgs& p) {
  const auto& attrs = p.attrs.as<NonzeroAttrs>();
  const Shape& shape = p.in(0).shape;
  NonzeroPlan plan;
  plan.size = shape.size();
  plan.rows = p.out(0).shape[0];
  plan.is_bound = p.inputs == 1;
  if (!plan.is_bound) plan.most_too_few = most_with_fewer(attrs.bucket, plan.rows);
  if (attrs.is_flat) return plan;
  plan.axes = shape.rank();
  for (int d = 0; d < plan.axes; ++d) plan.dims[d] = shape[d];
  return plan;
}

template <class Body>
void for_any(DType dtype, const Body& body) {
  for_dtype<float, double, half, bfloat16, std::int32_t, std::int64_t, std::uint8_t, bool>(dtype, body);
}

// The result has another size than was planned for. The first node that finds that is kept. Steps that were issued
// behind a failed one run with `ok` 0, or with Progress::failed 1: what they find says nothing of the step that will be
// run again.
__device__ inline void miss_size(StepState* step, int node, std::int64_t count) {
  if (*static_cast<const volatile std::uint32_t*>(&step->ok) == 0) return;
  if (atomicCAS(&step->size_node, -1, node) == -1) step->size = count;
}
void miss_size(const CpuArgs& a, std::int64_t count) {
  auto miss = [&](std::int32_t& node, std::int64_t& size) {
    std::int32_t none = -1;
    if (std::atomic_ref(node).compare_exchange_strong(none, a.id())) size = count;
  };
  if (a.has_step()) {
    auto* step = static_cast<StepState*>(a.step());
    if (std::atomic_ref(step->ok).load() != 0) miss(step->size_node, step->size);
    return;
  }
  HostStatus* status = bound_node(a).status;
  if (status == nullptr || (status->step_failed && std::atomic_ref(*status->step_failed).load() != 0)) return;
  miss(status->size_node, status->size);
}

// Null `places` and `count`: there are none.
__global__ void store_places(const std::int32_t* places, const std::int32_t* count, std::int32_t* out,
                             std::int32_t* out_count, NonzeroPlan plan, StepState* step, int node) {
  wait_for_inputs();
  std::int64_t found = count ? *count : 0;
  for (std::int64_t i = thread_index(); i < plan.rows * plan.axes; i += all_threads()) {
    std::int64_t row = quotient(i, plan.axes);
    out[i] = row < found ? plan.index(places[row], static_cast<int>(i - row * plan.axes)) : 0;
  }
  if (thread_index() != 0) return;
  *out_count = static_cast<std::int32_t>(found);
  if (plan.has_room(found)) return;
  if (!plan.is_bound) miss_size(step, node, found);
  fail_step(step, node, StepError::size, found);
}

void nonzero_cuda(CudaArgs& a) {
  const auto& plan = a.local<NonzeroPlan>();
  auto* places = static_cast<std::int32_t*>(a.workspace());
  std::int32_t* count = nullptr;
  if (plan.size > 0) {
    count = places + plan.size;
    std::byte* rest = static_cast<std::byte*>(a.workspace()) + (a.workspace_bytes() - plan.select_bytes);
    for_any(a.in_type(0).dtype, [&]<class T>() {
      select_nonzero(a, a.in<T>(0), static_cast<std::int32_t>(plan.size), places, count, rest, plan.select_bytes);
    });
  }
  a.launch(store_places, launch_size(std::max<std::int64_t>(plan.rows * plan.axes, 1)), places, count,
           a.out<std::int32_t>(0), a.out<std::int32_t>(1), plan, static_cast<StepState*>(a.step()), a.id());
}

template <class T>
std::int64_t find_nonzero(const T* x, const NonzeroPlan& plan, std::int32_t* out) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < plan.size; ++i) {
    if (!(x[i] != T(0)) || found++ >= plan.rows) continue;
    for (int d = 0; d < plan.axes; ++d) *out++ = plan.index(i, d);
  }
  return found;
}

void nonzero_cpu(const CpuArgs& a) {
  const auto& plan = a.local<NonzeroPlan>();
  auto* out = a.out<std::int32_t>(0);
  std::fill_n(out, plan.rows * plan.axes, 0);
  std::int64_t found = 0;
  for_any(a.in_type(0).dtype, [&]<class T>() { found = find_nonzero(a.in<T>(0), plan, out); });
  *a.out<std::int32_t>(1) = static_cast<std::int32_t>(found);
  if (plan.has_room(found)) return;
  if (!plan.is_bound) miss_size(a, found);
  fail_step(a, StepError::size, found);
}

void infer_nonzero(InferArgs& a) {
  const auto& attrs = a.attrs<NonzeroAttrs>();
  a.expect_inputs(attrs.most < 0 ? 2 : 1);
  const Shape& shape = a.in(0).shape;
  if (shape.size() > std::numeric_limits<std::int32_t>::max())
    a.fail("the operand has too many elements for places of i32", "split() it");
  if (shape.rank() == 0) a.fail("the operand is a scalar", "reshape() it to one element");
  Shape places{attrs.most < 0 ? a.in(1).shape[0] : attrs.most};
  if (!attrs.is_flat) places.push_back(shape.rank());
  a.out(DType::i32, places);
  a.out(DType::i32, {});
}

Access nonzero_access(int operand, int) { return operand == 1 ? Access::shape_only : Access::read; }

Prepared prepare_nonzero(const PrepareArgs& p) {
  auto plan = std::make_shared<NonzeroPlan>(plan_of(p));
  load_kernel(p, store_places);
  std::size_t workspace = 0;
  if (p.cuda && plan->size > 0) {
    for_any(p.in(0).dtype,
            [&]<class T>() { plan->select_bytes = prepare_select<T>(p, static_cast<std::int32_t>(plan->size)); });
    workspace = aligned((static_cast<std::size_t>(plan->size) + 1) * sizeof(std::int32_t)) + plan->select_bytes;
  }
  return {plan, workspace};
}

}  // namespace

const OpDef nonzero_op{.name = "nonzero",
                       .infer = infer_nonzero,
                       .access = nonzero_access,
                       .prepare = prepare_nonzero,
                       .bodies = {nonzero_cpu, nonzero_cuda}};

std::span<const FileOp> nonzero_file_ops() {
  static constexpr FileOp ops[] = {file_op<NonzeroAttrs>(nonzero_op)};
  return ops;
}

}  // namespace graphsink
