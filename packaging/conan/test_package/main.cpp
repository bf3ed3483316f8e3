// Trains one weight to 3 in one launch of 50 steps; exit 1 if it does not get there.
#include <graphsink/graphsink.h>

#include <cmath>
#include <iostream>

namespace gs = graphsink;

int main() {
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {2});
  gs::Variable w("w", gs::Tensor({0.0f}));
  gs::Value error = x * w - 3.0 * x;
  gs::sgd(gs::mean(error * error), {w}, {.lr = 0.1f});
  gs::Program step = gs::compile(g, {.target = gs::cpu()});
  step.write(x, gs::Tensor({1.0f, 2.0f}));
  step.run(gs::sink, {.steps = 50});
  const double learned = w.read().at(0);
  std::cout << "graphsink " << gs::version() << ": w " << learned << "\n";
  return std::abs(learned - 3) < 1e-3 ? 0 : 1;
}
