// reshape, reshape_like, flatten, squeeze, unsqueeze: views, so nothing runs.
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

struct AxisAttrs {
  int axis;
};

void infer_flatten(InferArgs& a) {
  a.expect_inputs(1);
  const Shape& shape = a.in(0).shape;
  int axis = axis_from_front(a, a.attrs<AxisAttrs>().axis, shape.rank());
  Shape out;
  for (int d = 0; d < axis; ++d) out.push_back(shape[d]);
  std::int64_t size = 1;
  for (int d = axis; d < shape.rank(); ++d) size *= shape[d];
  out.push_back(size);
  a.out(a.in(0).dtype, out);
}

void infer_squeeze(InferArgs& a) {
  a.expect_inputs(1);
  const Shape& shape = a.in(0).shape;
  int axis = axis_from_front(a, a.attrs<AxisAttrs>().axis, shape.rank());
  if (shape[axis] != 1) a.fail("axis " + std::to_string(axis) + " is not of size 1", "name another axis");
  Shape out;
  for (int d = 0; d < shape.rank(); ++d)
    if (d != axis) out.push_back(shape[d]);
  a.out(a.in(0).dtype, out);
}

void infer_unsqueeze(InferArgs& a) {
  a.expect_inputs(1);
  const Shape& shape = a.in(0).shape;
  int axis = axis_from_front(a, a.attrs<AxisAttrs>().axis, shape.rank() + 1);
  Shape out;
  for (int d = 0; d <= shape.rank(); ++d) out.push_back(d == axis ? 1 : shape[d < axis ? d : d - 1]);
  a.out(a.in(0).dtype, out);
}

constexpr OpDef axis_op(std::string_view name, void (*infer)(InferArgs&)) {
  return {.name = name, .infer = infer, .views = kView, .cuda = kCuda, .cpu = cpu_body, .grad = reshape_grad};
}
const OpDef flatten_op = axis_op("flatten", infer_flatten);
const OpDef squeeze_op = axis_op("squeeze", infer_squeeze);
const OpDef unsqueeze_op = axis_op("unsqueeze", infer_unsqueeze);

}  // namespace

Value flatten(Arg x, int axis, Label label) { return emit(flatten_op, {x}, AxisAttrs{axis}, label)[0]; }
Value squeeze(Arg x, int axis, Label label) { return emit(squeeze_op, {x}, AxisAttrs{axis}, label)[0]; }
Value unsqueeze(Arg x, int axis, Label label) { return emit(unsqueeze_op, {x}, AxisAttrs{axis}, label)[0]; }
Value reshape(Arg x, Shape shape, Label label) { return emit(reshape_op, {x}, ReshapeAttrs{shape}, label)[0]; }
Value reshape_like(Arg x, Arg like, Label label) { return emit(reshape_like_op, {x, like}, {}, label)[0]; }

}  // namespace graphsink
