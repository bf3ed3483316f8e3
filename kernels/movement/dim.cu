// dim: the size of an axis, which may be open, as a number that ops can use.
#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/support/kernel.h"
#include "kernels/support/op_parts.h"

namespace graphsink {
namespace {

struct DimAttrs {
  int axis;
  static auto fields(auto& s) { return std::tie("axis", s.axis); }
};

void infer_dim(InferArgs& a) {
  a.expect_inputs(1);
  const Shape& shape = a.in(0).shape;
  int axis = axis_from_front(a, a.attrs<DimAttrs>().axis, shape.rank());
  if (shape[axis] > std::numeric_limits<std::int32_t>::max())
    a.fail("axis " + std::to_string(axis) + " is too long for an i32", "take the size of a part of it");
  a.out(DType::i32, {});
}

std::int32_t size_of_axis(const BodyArgs& a) {
  return static_cast<std::int32_t>(a.in_type(0).shape[a.attrs<DimAttrs>().axis]);
}

__global__ void store_number(std::int32_t number, std::int32_t* out) {
  wait_for_inputs();
  *out = number;
}

void dim_cuda(CudaArgs& a) { a.launch(store_number, Extent{}, Extent{}, 0, size_of_axis(a), a.out<std::int32_t>(0)); }
void dim_cpu(const CpuArgs& a) { *a.out<std::int32_t>(0) = size_of_axis(a); }

const OpDef dim_op{.name = "dim",
                   .infer = infer_dim,
                   .access = only_shape,
                   .traits = {.kernels_wait = true},
                   .prepare = load_kernels<store_number>,
                   .bodies = {dim_cpu, dim_cuda}};

}  // namespace

Value dim(Arg x, int axis, Placement placement) { return emit(dim_op, {x}, DimAttrs{axis}, placement)[0]; }

std::span<const FileOp> dim_file_ops() {
  static constexpr FileOp ops[] = {file_op<DimAttrs>(dim_op)};
  return ops;
}

}  // namespace graphsink
