// The CUDA calls of a training step, op by op and sunk: what lies between the lines "-- ..." of its standard error,
// where GS_EMU_TRACE=1. Standard output has the plan, and profiling/step_picture.py draws both.
#include <graphsink/graphsink.h>

#include <iostream>

namespace gs = graphsink;

int main() {
  if (gs::cuda_device_count() == 0) return 0;
  gs::Graph g;
  gs::Value x = g.feed("x", gs::f32, {32, 784}), t = g.feed("t", gs::i32, {32});
  gs::Variable w1("w1", gs::Tensor::kaiming({784, 256}, 1)), w2("w2", gs::Tensor::kaiming({256, 10}, 2));
  gs::Value loss = cross_entropy(matmul(relu(matmul(x, w1)), w2), t);
  gs::adamw(loss, {w1, w2}, {.lr = 1e-3});
  g.record("loss", loss);
  gs::Program step = gs::compile(g, {.target = gs::cuda(0)});
  const gs::Digits digits = gs::seeded_digits(320, 3);
  step.write(x, digits.images.as<float>());
  step.write(t, digits.labels.as<std::int32_t>());
  step.run(gs::sink, {.steps = 10});
  step.run(gs::sink);  // by now everything is loaded, and captured
  step.sync();
  // [calls]
  const gs::Counters begin = step.counters();
  std::cerr << "-- op by op\n";
  step.run(gs::interactive);
  step.sync();
  const gs::Counters between = step.counters();
  std::cerr << "-- sunk\n";
  step.run(gs::sink);
  step.sync();
  const gs::Counters end = step.counters();
  std::cerr << "-- end\n";
  // [calls]
  std::cout << between.kernels - begin.kernels << " kernels op by op, " << end.kernels - between.kernels << " sunk\n";
  return between.kernels - begin.kernels > 5 && between.graph_launches == begin.graph_launches &&
                 end.graph_launches == between.graph_launches + 1
             ? 0
             : 1;
}
