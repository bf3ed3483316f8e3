// Optimizers, schedules, mixed precision, averages: docs/how-to/optimizers.md.
#include <graphsink/graphsink.h>

#include <iostream>
#include <vector>
namespace gs = graphsink;

static bool groups() {
  // [groups]
  gs::Graph g;
  gs::Variable w("w", gs::Tensor::kaiming({16, 16}, 1)), b("b", gs::Tensor(gs::f32, {16}));
  gs::Value x = g.input("x", gs::f32, {8, 16}), y = tanh(matmul(x, w) + b);
  gs::Value rate = gs::cosine_schedule(g, {.peak = 1e-2, .warmup = 10, .steps = 100});
  gs::Variable decay("decay", gs::Tensor::scalar(0.1f));  // the host may write it between runs
  const std::vector<gs::ParameterGroup> parts{{.parameters = {w}, .weight_decay = decay}, {.parameters = {b}}};
  gs::Optimizer optimizer =
      gs::adamw(mean(y * y), parts, {.lr = rate, .weight_decay = 0, .gradients = {.clip_norm = 1.0, .accumulate = 2}});
  g.record("norm", optimizer.gradient_norm);                                            // before clipping
  const std::vector<gs::Variable> averages = gs::exponential_average(g, {w, b}, 0.99);  // "w.ema", "b.ema"
  // [groups]
  gs::Program program = gs::compile(g);
  program.write(x, gs::Tensor::uniform({8, 16}, 3, -1.0f, 1.0f));
  program.run(gs::sink, {.steps = 20});
  decay.write(gs::Tensor::scalar(0.05f));
  program.run(gs::sink, {.steps = 20});
  return program.records("norm").size() == 40 && averages.size() == 2 && averages[0].name() == "w.ema";
}

static bool halves() {
  // [half]
  gs::Graph g;
  gs::Variable w("w", gs::Tensor::kaiming({16, 16}, 1).to(gs::f16));  // master copy "w.sgd.master" in f32
  gs::Value x = g.input("x", gs::f16, {8, 16}), y = matmul(x, w);
  gs::Value loss = mean(cast(y * y, gs::f32));
  gs::Optimizer optimizer =
      gs::sgd(loss, {w}, {.lr = 0.1, .gradients = {.loss_scale = gs::LossScale{.initial = 1024}}});
  // [half]
  g.record("scale", optimizer.loss_scale);
  gs::Program program = gs::compile(g);
  program.write(x, gs::Tensor::uniform({8, 16}, 3, -1.0f, 1.0f).to(gs::f16));
  program.run(gs::sink, {.steps = 5});
  return program.records("scale").front() == 1024;
}

static bool own_gradients() {
  // [apply]
  gs::Graph g;
  gs::Variable w("w", gs::Tensor({3.0f, -2.0f}));
  gs::Value loss = sum(g.value(w) * g.value(w));
  std::vector<gs::Value> gradients = gs::grad(loss, {w});
  gradients[0] = clamp(gradients[0], -1.0, 1.0);  // each element by itself
  gs::apply(gs::SgdOptions{.lr = 1.0}, {w}, gradients);
  g.record("after", sum(g.updated(w)));  // the parameter after its update, in the same step
  // [apply]
  gs::Program program = gs::compile(g);
  program.run();
  return program.records("after").front() == 1.0f && w.read().at(0) == 2.0;
}

int main() try { return groups() && halves() && own_gradients() ? 0 : 1; } catch (const gs::Error& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
