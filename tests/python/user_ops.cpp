// An extension module of a user's, with an op of their own for graphs that Python builds (docs/python.md). It is linked
// with the module of the package, so that there is one library in the process, and two ops of one name are one op.
#include <graphsink/graphsink.h>
#include <graphsink/op.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <tuple>
#include <vector>

namespace gs = graphsink;
namespace nb = nanobind;

namespace {

struct Bent {
  float at = 0;
  static auto fields(auto& s) { return std::tie("at", s.at); }
};

void infer(gs::InferArgs& a) {
  a.expect_inputs(1);
  if (a.in(0).dtype != gs::f32) a.fail("takes f32", "cast() the operand");
  a.out(a.in(0).dtype, a.in(0).shape);
}

// x below `at`, and twice as steep from there on.
void body(const gs::CpuArgs& a) {
  const float at = a.attrs<Bent>().at;
  const auto* x = a.in<float>(0);
  for (std::int64_t i = 0; i < a.in_type(0).shape.size(); ++i) a.out<float>(0)[i] = x[i] < at ? x[i] : 2 * x[i] - at;
}

// Of ops of the library.
std::vector<gs::Value> gradient(const gs::GradArgs& a) {
  const gs::Arg x(a.inputs[0], a.where), up(a.grads[0], a.where);
  const gs::Value above = gs::cast(gs::Arg(gs::greater_equal(x, a.attrs.as<Bent>().at), a.where), gs::f32);
  return {gs::mul(up, gs::Arg(gs::add(gs::Arg(above, a.where), 1.0), a.where))};
}

const gs::OpDef bent_op{.name = "bent", .infer = infer, .bodies = {body}, .grad = gradient};

}  // namespace

NB_MODULE(python_user_ops, m) {
  nb::module_::import_("graphsink");  // the types of arguments and results
  m.def(
      "bent", [](const gs::Value& x, float at) { return gs::emit(bent_op, {x}, Bent{at})[0]; }, nb::arg("x"),
      nb::arg("at"));
  m.attr("file_ops") = nb::make_tuple(gs::file_op<Bent>(bent_op));
  m.attr("newer_file_ops") = nb::make_tuple(gs::file_op<Bent>(bent_op, 2));
}
