// reshape, reshape_like: views, so nothing runs.
#include "graphsink/ops.h"
#include "kernels/kernel.h"
#include "kernels/reduce_ops.h"

namespace graphsink {
namespace {

void cpu_body(const CpuArgs&) {}
void cuda_body(CudaArgs&) {}
constexpr CudaBody kCuda[] = {{0, cuda_body}};
constexpr Alias kView[] = {{0, 0}};

struct ReshapeAttrs {
  Shape shape;
};

void infer_reshape(InferArgs& a) {
  a.expect_inputs(1);
  Shape shape = a.attrs<ReshapeAttrs>().shape;
  std::int64_t size = a.in(0).shape.size();
  std::int64_t known = 1;
  int open = -1;
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] >= 0) {
      known *= shape[d];
    } else if (shape[d] == -1 && open < 0) {
      open = d;
    } else {
      a.fail("to " + to_string(shape), "give sizes, and -1 for at most one of them");
    }
  }
  if (open >= 0 && known > 0 && size % known == 0) shape[open] = size / known;
  if (shape.size() != size || (open >= 0 && shape[open] < 0)) {
    a.fail(
        "to " + to_string(a.attrs<ReshapeAttrs>().shape) + " changes the number of elements, " + std::to_string(size),
        "keep the product of the dimensions");
  }
  a.out(a.in(0).dtype, shape);
}

void infer_reshape_like(InferArgs& a) {
  a.expect_inputs(2);
  if (a.in(0).shape.size() != a.in(1).shape.size())
    a.fail("the numbers of elements differ", "reshape to a tensor of the same size");
  a.out(a.in(0).dtype, a.in(1).shape);
}

std::vector<Value> reshape_grad(const GradArgs& a) {
  std::vector<Value> result(a.inputs.size());
  result[0] = reshape_like(Arg(a.grads[0], a.where), a.inputs[0]);
  return result;
}

const OpDef reshape_op{
    .name = "reshape", .infer = infer_reshape, .views = kView, .cuda = kCuda, .cpu = cpu_body, .grad = reshape_grad};
const OpDef reshape_like_op{.name = "reshape_like",
                            .infer = infer_reshape_like,
                            .access = like_access,
                            .views = kView,
                            .cuda = kCuda,
                            .cpu = cpu_body,
                            .grad = reshape_grad};

}  // namespace

Value reshape(Arg x, Shape shape, Label label) { return emit(reshape_op, {x}, ReshapeAttrs{shape}, label)[0]; }
Value reshape_like(Arg x, Arg like, Label label) { return emit(reshape_like_op, {x, like}, {}, label)[0]; }

}  // namespace graphsink
