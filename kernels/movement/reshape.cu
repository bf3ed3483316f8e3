// reshape, reshape_like, flatten, squeeze, unsqueeze, stop_gradient: views, so plans have no nodes for them. Only Eager
// calls their bodies.
#include <utility>

#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/support/kernel.h"
#include "kernels/support/op_parts.h"
#include "kernels/support/reduce_ops.h"

namespace graphsink {
namespace {

void cpu_body(const CpuArgs&) {}
void cuda_body(CudaArgs&) {}
constexpr Alias kView[] = {{0, 0}};

struct ReshapeAttrs {
  NewShape shape;
  static auto fields(auto& s) { return std::tie("shape", s.shape.dims()); }
};

std::string to_string(const NewShape& shape) {
  std::string text;
  for (const NewDim& dim : shape.dims()) {
    text += text.empty() ? "" : ", ";
    text += dim.kept ? "keep(" + std::to_string(*dim.kept) + ")" : std::to_string(dim.size);
  }
  return "[" + text + "]";
}

void infer_reshape(InferArgs& a) {
  a.expect_inputs(1);
  const Shape& in = a.in(0).shape;
  const NewShape& wanted = a.attrs<ReshapeAttrs>().shape;
  bool is_kept[Shape::kMaxRank] = {};
  Shape out, given;  // `given`: sizes for the axes that are not kept
  int left_over = -1;
  for (const NewDim& dim : wanted.dims()) {
    if (dim.kept) {
      int axis = axis_from_front(a, *dim.kept, in.rank());
      if (std::exchange(is_kept[axis], true))
        a.fail("to " + to_string(wanted) + " keeps axis " + std::to_string(axis) + " twice", "keep each axis once");
      out.push_back(in[axis]);
    } else if (dim.size >= 0) {
      out.push_back(dim.size);
      given.push_back(dim.size);
    } else if (dim.size == -1 && left_over < 0) {
      left_over = out.rank();
      out.push_back(1);
    } else {
      a.fail("to " + to_string(wanted), "give sizes, and -1 for at most one of them");
    }
  }
  Shape others;
  for (int d = 0; d < in.rank(); ++d)
    if (!is_kept[d]) others.push_back(in[d]);
  std::int64_t size = others.size(), known = given.size();
  bool fits = left_over < 0 ? size == known : known > 0 && size % known == 0;
  if (!fits) {
    a.fail("to " + to_string(wanted) + " changes the number of elements, " + std::to_string(in.size()),
           "keep the product of the dimensions");
  }
  if (left_over >= 0) out[left_over] = size / known;
  a.out(a.in(0).dtype, out);
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

const OpDef reshape_op{.name = "reshape",
                       .infer = infer_reshape,
                       .views = kView,
                       .traits = {.only_views = true},
                       .bodies = {cpu_body, cuda_body},
                       .grad = reshape_grad};
const OpDef reshape_like_op{.name = "reshape_like",
                            .infer = infer_reshape_like,
                            .access = like_access,
                            .views = kView,
                            .traits = {.only_views = true},
                            .bodies = {cpu_body, cuda_body},
                            .grad = reshape_grad};

struct AxisAttrs {
  int axis;
  static auto fields(auto& s) { return std::tie("axis", s.axis); }
};

void infer_flatten(InferArgs& a) {
  a.expect_inputs(1);
  const Shape& shape = a.in(0).shape;
  int axis = axis_from_front(a, a.attrs<AxisAttrs>().axis, shape.rank());
  Shape out(shape.dims().first(static_cast<std::size_t>(axis)));
  out.push_back(Shape(shape.dims().subspan(static_cast<std::size_t>(axis))).size());
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
  return {.name = name,
          .infer = infer,
          .views = kView,
          .traits = {.only_views = true},
          .bodies = {cpu_body, cuda_body},
          .grad = reshape_grad};
}
const OpDef flatten_op = axis_op("flatten", infer_flatten);
const OpDef squeeze_op = axis_op("squeeze", infer_squeeze);
const OpDef unsqueeze_op = axis_op("unsqueeze", infer_unsqueeze);

void infer_same(InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.in(0).dtype, a.in(0).shape);
}
const OpDef stop_gradient_op{.name = "stop_gradient",
                             .infer = infer_same,
                             .views = kView,
                             .traits = {.only_views = true},
                             .bodies = {cpu_body, cuda_body},
                             .grad = no_grad};

// A NewShape in files: its sizes, and for axes that are kept their numbers.
struct DimInFile {
  std::int64_t size;
  std::optional<int> kept;
  static auto fields(auto& s) { return std::tie("size", s.size, "kept", s.kept); }
};
struct ReshapeInFile {
  std::vector<DimInFile> shape;
  static auto fields(auto& s) { return std::tie("shape", s.shape); }
};

void write_reshape(FieldIo& io, const Attrs& attrs) {
  ReshapeInFile file;
  for (const NewDim& dim : attrs.as<ReshapeAttrs>().shape.dims()) file.shape.push_back({dim.size, dim.kept});
  transfer_value(io, file);
}

Attrs read_reshape(FieldIo& io) {
  ReshapeInFile file;
  transfer_value(io, file);
  std::vector<NewDim> dims;
  for (const DimInFile& dim : file.shape) dims.push_back(dim.kept ? keep(*dim.kept) : NewDim(dim.size));
  return ReshapeAttrs{std::move(dims)};
}

constexpr AttrsIo kReshapeIo = {write_reshape, read_reshape};

}  // namespace

Value stop_gradient(Arg x, Placement placement) { return emit(stop_gradient_op, {x}, {}, placement)[0]; }
Value flatten(Arg x, int axis, Placement placement) { return emit(flatten_op, {x}, AxisAttrs{axis}, placement)[0]; }
Value squeeze(Arg x, int axis, Placement placement) { return emit(squeeze_op, {x}, AxisAttrs{axis}, placement)[0]; }
Value unsqueeze(Arg x, int axis, Placement placement) { return emit(unsqueeze_op, {x}, AxisAttrs{axis}, placement)[0]; }

NewDim keep(int axis) {
  NewDim dim;
  dim.kept = axis;
  return dim;
}

NewShape::NewShape(const Shape& shape, Where where) {
  for (std::int64_t dim : shape.dims(where)) dims_.emplace_back(dim);
}

Value reshape(Arg x, NewShape shape, Placement placement) {
  return emit(reshape_op, {x}, ReshapeAttrs{std::move(shape)}, placement)[0];
}
Value reshape_like(Arg x, Arg like, Placement placement) { return emit(reshape_like_op, {x, like}, {}, placement)[0]; }

std::span<const FileOp> reshape_file_ops() {
  static constexpr FileOp ops[] = {{&reshape_op, kReshapeIo},        file_op(reshape_like_op),
                                   file_op<AxisAttrs>(flatten_op),   file_op<AxisAttrs>(squeeze_op),
                                   file_op<AxisAttrs>(unsqueeze_op), file_op(stop_gradient_op)};
  return ops;
}

}  // namespace graphsink
