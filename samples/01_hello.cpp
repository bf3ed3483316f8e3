// A small network, trained op by op and then in one launch.
#include <graphsink/graphsink.h>

#include <iostream>
namespace gs = graphsink;

int main() try {
  gs::Graph g;
  gs::Value x = g.feed("x", gs::f32, {32, 784});
  gs::Value t = g.feed("t", gs::i32, {32});
  gs::Variable w1("w1", gs::Tensor::kaiming({784, 256}, 1)), w2("w2", gs::Tensor::kaiming({256, 10}, 2));
  gs::Value loss = cross_entropy(matmul(relu(matmul(x, w1)), w2), t);
  gs::adamw(loss, {w1, w2}, {.lr = 1e-3});  // gradients, update and commit are nodes of the graph
  g.record("loss", loss);                   // one scalar per step, read when you like

  gs::Program step = gs::compile(g, {.target = gs::cuda_device_count() > 0 ? gs::cuda(0) : gs::cpu()});
  std::cout << step.explain();
  const gs::Digits digits = gs::seeded_digits(3200, 3);  // for each of 100 steps, one slice of 32 digits
  step.write(x, digits.images.as<float>());
  step.write(t, digits.labels.as<std::int32_t>());
  step.run(gs::interactive);           // op by op
  step.run(gs::sink);                  // the same plan, one launch
  step.run(gs::sink, {.steps = 100});  // one launch, 100 training steps
  std::vector<float> losses = step.records("loss");
  std::cout << losses.size() << " steps, loss " << losses.front() << " -> " << losses.back() << "\n";
  return std::cout.flush() ? 0 : 2;  // a full disk would lose what was printed
} catch (const gs::Error& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 2;
}
