// A small network, trained op by op and then in one launch of 100 steps.
#include <graphsink/graphsink.h>

#include <iostream>

namespace gs = graphsink;

int main() {
  // [program]
  gs::Graph g;
  gs::Value x = g.feed("x", gs::f32, {32, 784});  // a feed has a slice for each step of a launch
  gs::Value t = g.feed("t", gs::i32, {32});
  gs::Variable w1("w1", gs::Tensor::kaiming({784, 256}, 1)), w2("w2", gs::Tensor::kaiming({256, 10}, 2));
  gs::Value loss = cross_entropy(matmul(relu(matmul(x, w1)), w2), t);
  gs::adamw(loss, {w1, w2}, {.lr = 1e-3});  // gradients, update and commit are nodes of the graph
  g.record("loss", loss);                   // one scalar per step, read when you like

  gs::Program step = gs::compile(g, {.target = gs::cuda_device_count() > 0 ? gs::cuda(0) : gs::cpu()});
  const gs::Digits digits = gs::seeded_digits(3200, 3);  // made-up images: 100 slices of 32
  step.write(x, digits.images.as<float>());
  step.write(t, digits.labels.as<std::int32_t>());
  step.run(gs::interactive);                         // op by op
  step.run(gs::sink, {.steps = 100});                // one launch, 100 training steps
  std::vector<float> losses = step.records("loss");  // every step's value, never only the last
  // [program]
  // [print]
  std::cout << step.explain();
  std::cout << losses.size() << " steps, loss " << losses.front() << " -> " << losses.back() << "\n";
  // [print]
  return losses.size() == 101 && losses.back() < losses.front() ? 0 : 1;
}
