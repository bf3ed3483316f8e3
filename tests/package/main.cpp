#include <graphsink/graphsink.h>
#include <graphsink/kernel.h>

#include <iostream>

namespace gs = graphsink;

// An op for the CPU, in a file that no CUDA compiler sees.
namespace {

void infer_triple(gs::InferArgs& a) {
  a.expect_inputs(1);
  gs::expect_dtype<float>(a, 0);
  a.out(a.in(0).dtype, a.in(0).shape);
}
void run_triple(const gs::CpuArgs& a) {
  for (std::int64_t i = 0; i < a.in_type(0).shape.size(); ++i) a.out<float>(0)[i] = 3.0f * a.in<float>(0)[i];
}
const gs::OpDef triple{.name = "triple", .infer = infer_triple, .bodies = {run_triple}};

}  // namespace

int main() {
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {4}), y = gs::emit(triple, {x})[0];
  gs::Variable w("w", gs::Tensor({0.0f}));
  gs::Value error = x * w - y;
  gs::Value loss = gs::mean(error * error);
  gs::sgd(loss, {w}, {.lr = 0.05f});
  g.record("loss", loss);

  gs::Program step = gs::compile(g);
  step.write(x, gs::Tensor({1.0f, 2.0f, 3.0f, 4.0f}));
  step.run(gs::sink, {.steps = 50});
  std::cout << "loss " << step.records<float>("loss").back() << ", w " << w.read().at(0) << "\n";
}
