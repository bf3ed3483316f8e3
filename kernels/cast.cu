// cast: any dtype to any other. Floats to i32 are truncated; to boolean: x != 0.
#include "kernels/elementwise.h"

namespace graphsink {
namespace {

struct CastAttrs {
  DType dtype;
};

template <class Out>
struct Cast {
  template <class T>
  HD static Out apply(T x) {
    if constexpr (std::is_same_v<Out, bool>) {
      return x != T(0);
    } else {
      return static_cast<Out>(x);
    }
  }
};

void infer_cast(InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.attrs<CastAttrs>().dtype, a.in(0).shape);
}

template <class Out>
Prepared prepare_to(const PrepareArgs& p) {
  return prepare_elementwise<Cast<Out>, 1, float, double, std::int32_t, bool>(p);
}
Prepared prepare_cast(const PrepareArgs& p) {
  switch (p.attrs.as<CastAttrs>().dtype) {
    case DType::f32:
      return prepare_to<float>(p);
    case DType::f64:
      return prepare_to<double>(p);
    case DType::i32:
      return prepare_to<std::int32_t>(p);
    case DType::boolean:
      break;
  }
  return prepare_to<bool>(p);
}

std::vector<Value> cast_grad(const GradArgs& a) {
  if (!is_float(a.outputs[0].dtype())) return {Value()};
  return {cast(Arg(a.grads[0], a.where), a.inputs[0].dtype())};
}

const OpDef cast_op{.name = "cast",
                    .infer = infer_cast,
                    .in_place = kElementwiseInPlace<1>,
                    .prepare = prepare_cast,
                    .cuda = kElementwiseCuda<1>,
                    .cpu = elementwise_cpu<1>,
                    .grad = cast_grad};

}  // namespace

Value cast(Arg x, DType dtype, Label label) { return emit(cast_op, {x}, CastAttrs{dtype}, label)[0]; }

}  // namespace graphsink
