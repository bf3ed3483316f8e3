// Assignments keep the order in which they are written, on one device or two: x = y; x = z; r = x - y.
#include <graphsink/graphsink.h>

#include <iostream>
namespace gs = graphsink;

namespace {

// An op with an effect that the graph cannot see. Such an op is never dropped and never reordered.
void infer(gs::InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.in(0).dtype, a.in(0).shape);
}
void say(const gs::CpuArgs& a) {
  std::cout << "  r = " << *a.in<float>(0) << "\n";
  *a.out<float>(0) = *a.in<float>(0);
}
const gs::OpDef say_op{.name = "say", .infer = infer, .traits = {.host_effect = true}, .bodies = {say}};

}  // namespace

int main() try {
  gs::Graph g;
  gs::Variable x("x", gs::Tensor({1.0f})), y("y", gs::Tensor({10.0f})), z("z", gs::Tensor({100.0f}));

  gs::assign(x, g.value(y));
  gs::assign(x, add(g.value(z), 0.0, gs::on_cpu));  // runs on the host; the order stays
  gs::Value r = g.value(x) - g.value(y);            // sees the second assignment: 90
  gs::emit(say_op, {r});
  gs::assign(y, g.value(y) + 1.0);
  gs::assign(z, g.value(x) + g.value(y));  // reads the values that were just assigned
  g.output("r", r);

  gs::Program program = gs::compile(g, {.target = gs::cuda_device_count() > 0 ? gs::cuda(0) : gs::cpu()});
  std::cout << program.explain();
  for (gs::Mode mode : gs::kAllModes) {
    x.write(gs::Tensor({1.0f})), y.write(gs::Tensor({10.0f})), z.write(gs::Tensor({100.0f}));
    std::cout << gs::to_string(mode) << ":\n";
    program.run(mode, {.steps = 2});
    program.sync();
    std::cout << "  x, y, z = " << x.read().at(0) << ", " << y.read().at(0) << ", " << z.read().at(0) << "\n";
  }
  return std::cout.flush() ? 0 : 2;  // a full disk would lose what was printed
} catch (const gs::Error& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 2;
}
