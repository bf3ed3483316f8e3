#include <graphsink/graphsink.h>

#include <iostream>

namespace gs = graphsink;

int main() {
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {4}), y = g.input("y", gs::f32, {4});
  gs::Variable w("w", gs::Tensor({0.0f}));
  gs::Value error = x * w - y;
  gs::Value loss = gs::mean(error * error);
  gs::sgd(loss, {w}, {.lr = 0.05f});
  g.record("loss", loss);

  gs::Program step = gs::compile(g);
  step.write(x, gs::Tensor({1.0f, 2.0f, 3.0f, 4.0f}));
  step.write(y, gs::Tensor({3.0f, 6.0f, 9.0f, 12.0f}));
  step.run(gs::sink, {.steps = 50});
  std::cout << "loss " << step.records<float>("loss").back() << ", w " << w.read().at(0) << "\n";
}
