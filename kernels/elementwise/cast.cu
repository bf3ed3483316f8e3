// cast: any dtype to any other.
#include "base/convert.h"
#include "kernels/file_ops.h"
#include "kernels/support/elementwise.h"

namespace graphsink {
namespace {

struct CastAttrs {
  DType dtype;
  static auto fields(auto& s) { return std::tie("dtype", s.dtype); }
};

template <class Out>
struct Cast {
  template <class T>
  HD static Out apply(T x) {
    return convert<Out>(x);
  }
  static void row(std::int64_t size, const float* x, half* out) requires std::is_same_v<Out, half> {
    narrow(size, x, out);
  }
  static void row(std::int64_t size, const half* x, float* out) requires std::is_same_v<Out, float> {
    widen(size, x, out);
  }
};

void infer_cast(InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.attrs<CastAttrs>().dtype, a.in(0).shape);
}

template <class Body>
void for_any_dtype(DType dtype, const Body& body) {
  for_dtype<float, double, half, bfloat16, std::int32_t, std::int64_t, std::uint8_t, bool>(dtype, body);
}

Prepared prepare_cast(const PrepareArgs& p) {
  ElementwisePlan<1> plan;
  for_any_dtype(p.attrs.as<CastAttrs>().dtype, [&]<class Out>() {
    for_any_dtype(p.in(0).dtype, [&]<class In>() { plan = elementwise_plan<Cast<Out>, In, Out, 1>(p); });
  });
  return {std::make_shared<ElementwisePlan<1>>(plan)};
}

ElementwiseRow cast_row(std::span<const TensorType> types) {
  ElementwiseRow row = nullptr;
  for_any_dtype(types[1].dtype, [&]<class Out>() {
    for_any_dtype(types[0].dtype, [&]<class In>() { row = elementwise_row<Cast<Out>, In, Out, 1>; });
  });
  return row;
}

std::vector<Value> cast_grad(const GradArgs& a) {
  if (!is_float(a.outputs[0].dtype())) return {Value()};
  return {cast(Arg(a.grads[0], a.where), a.inputs[0].dtype())};
}

const OpDef cast_op{.name = "cast",
                    .infer = infer_cast,
                    .in_place = kElementwiseInPlace<1>,
                    .traits = {.kernels_wait = true},
                    .prepare = prepare_cast,
                    .elements = {.text = "convert<R>(x)", .type = as_stored, .row = cast_row},
                    .bodies = {{elementwise_part<1>, elementwise_cpu<1>}, elementwise_cuda<1>},
                    .grad = cast_grad};

}  // namespace

Value cast(Arg x, DType dtype, Placement placement) { return emit(cast_op, {x}, CastAttrs{dtype}, placement)[0]; }

std::span<const FileOp> cast_file_ops() {
  static constexpr FileOp ops[] = {file_op<CastAttrs>(cast_op)};
  return ops;
}

}  // namespace graphsink
