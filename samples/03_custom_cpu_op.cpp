// A custom op with a CPU body and a gradient. It is a constant; nothing has to be registered. On a CUDA device it runs
// on the host, as a node of the launch between two copies, and explain() says so.
#include <graphsink/graphsink.h>

#include <iostream>
namespace gs = graphsink;

namespace {

void infer(gs::InferArgs& a) {
  a.expect_inputs(1);
  if (a.in(0).dtype != gs::f32) a.fail("takes f32", "cast() its input");
  a.out(a.in(0).dtype, a.in(0).shape);
}

void body(const gs::CpuArgs& a) {
  const auto* x = a.in<float>(0);
  auto* y = a.out<float>(0);
  for (std::int64_t i = 0; i < a.in_type(0).shape.size(); ++i) y[i] = x[i] * x[i] * x[i];
}

// d cube(x) / dx = 3 x^2, built as graph nodes.
std::vector<gs::Value> gradient(const gs::GradArgs& a) {
  const gs::Value& x = a.inputs[0];
  return {a.grads[0] * (3.0 * (x * x))};
}

const gs::OpDef cube_op{.name = "cube", .infer = infer, .bodies = {body}, .grad = gradient};

gs::Value cube(gs::Arg x) { return gs::emit(cube_op, {x})[0]; }

}  // namespace

int main() try {
  gs::Graph g;
  gs::Variable w("w", gs::Tensor({1.0f, 2.0f, 3.0f}));
  gs::Value loss = sum(cube(g.value(w)));
  g.output("gradient", gs::grad(loss, {w})[0]);
  gs::sgd(loss, {w}, {.lr = 0.01});
  g.record("loss", loss);

  gs::Program program = gs::compile(g, {.target = gs::cuda_device_count() > 0 ? gs::cuda(0) : gs::cpu()});
  std::cout << program.explain();
  program.run(gs::sink);
  std::cout << "gradient = " << program.output("gradient") << "\n";
  program.run(gs::sink, {.steps = 9});
  std::vector<float> losses = program.records("loss");
  std::cout << "loss " << losses.front() << " -> " << losses.back() << "\n";
  return std::cout.flush() ? 0 : 2;  // a full disk would lose what was printed
} catch (const gs::Error& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 2;
}
