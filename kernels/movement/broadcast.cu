// broadcast_like: x repeated to the shape of another tensor; its gradient is sum_like.
#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/support/dtype.h"
#include "kernels/support/layout.h"
#include "kernels/support/reduce_ops.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

template <class T>
HD T scaled(T x, Wide<T> divisor) {
  if constexpr (std::is_integral_v<T>) {
    return x;  // only floats have a mean
  } else {
    return static_cast<T>(x / divisor);
  }
}

template <class T>
__global__ void broadcast(const T* x, T* out, Layout<1> layout, Wide<T> divisor) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < layout.size; i += all_threads())
    out[i] = scaled(x[layout.find(i)], divisor);
}

struct BroadcastPlan {
  void (*cpu)(const BroadcastPlan&, const void* x, std::int64_t begin, std::int64_t size, void* out) = nullptr;
  void (*cuda)(const BroadcastPlan&, CudaArgs&) = nullptr;
  Layout<1> layout;
  double divisor = 1;
};

template <class T>
void broadcast_cuda(const BroadcastPlan& plan, CudaArgs& a) {
  a.launch(broadcast<T>, launch_size(plan.layout.size), a.in<T>(0), a.out<T>(0), plan.layout,
           static_cast<Wide<T>>(plan.divisor));
}

template <class T>
void broadcast_cpu(const BroadcastPlan& plan, const void* operand, std::int64_t begin, std::int64_t size,
                   void* result) {
  auto divisor = static_cast<Wide<T>>(plan.divisor);
  const Layout<1>& layout = plan.layout;
  const std::int64_t end = begin + size;
  T* out = static_cast<T*>(result);
  RowWalk walk(layout, begin);
  for (std::int64_t i = begin, count = 0; i < end; i += count, out += count, walk.next_row()) {
    count = std::min(walk.left(), end - i);
    const T* x = static_cast<const T*>(operand) + walk.offset();
    if (layout.step(0) == 0) {
      std::fill_n(out, count, scaled(*x, divisor));
    } else {
      for_each_index(count, [=](std::int64_t j) { out[j] = scaled(x[j], divisor); });
    }
  }
}

template <class T>
void choose(const PrepareArgs& p, BroadcastPlan& plan) {
  load_kernel(p, broadcast<T>);
  plan.cpu = broadcast_cpu<T>;
  plan.cuda = broadcast_cuda<T>;
}

Prepared prepare_broadcast(const PrepareArgs& p) {
  const auto& attrs = p.attrs.as<LikeAttrs>();
  BroadcastPlan plan;
  const Shape& out = p.out(0).shape;
  plan.layout = make_layout<1>(out, {with_axes(p.in(0).shape, attrs.axes)});
  if (attrs.is_mean && out.size() > 0) plan.divisor = static_cast<double>(out.size() / p.in(0).shape.size());
  for_dtype<float, double, half, bfloat16, std::int32_t, std::int64_t, std::uint8_t, bool>(
      p.out(0).dtype, [&]<class T>() { choose<T>(p, plan); });
  return {std::make_shared<BroadcastPlan>(plan)};
}

void infer_broadcast(InferArgs& a) {
  a.expect_inputs(2);
  if (!broadcasts_to(with_axes(a.in(0).shape, a.attrs<LikeAttrs>().axes), a.in(1).shape)) {
    a.fail("the first does not broadcast to the shape of the second",
           "make its trailing dimensions equal or 1, for example with reshape()");
  }
  a.out(a.in(0).dtype, a.in(1).shape);
}

void cpu_part(const CpuArgs& a, std::int64_t begin, std::int64_t size, void* out) {
  const auto& plan = a.local<BroadcastPlan>();
  plan.cpu(plan, a.in<void>(0), begin, size, out);
}
void cuda_body(CudaArgs& a) {
  const auto& plan = a.local<BroadcastPlan>();
  plan.cuda(plan, a);
}

std::vector<Value> broadcast_grad(const GradArgs& a) {
  return {emit(sum_like_op, {Arg(a.grads[0], a.where), a.inputs[0]}, a.attrs)[0], Value()};
}

}  // namespace

const OpDef broadcast_like_op{.name = "broadcast_like",
                              .infer = infer_broadcast,
                              .access = like_access,
                              .traits = {.kernels_wait = true},
                              .prepare = prepare_broadcast,
                              .bodies = {cpu_part, cuda_body},
                              .grad = broadcast_grad};

Value broadcast_like(Arg x, Arg like, Placement placement) {
  return emit(broadcast_like_op, {x, like}, LikeAttrs{}, placement)[0];
}

std::span<const FileOp> broadcast_file_ops() {
  static constexpr FileOp ops[] = {file_op<LikeAttrs>(broadcast_like_op)};
  return ops;
}

}  // namespace graphsink
