// Loops, branches, and sizes that are known late: docs/how-to/control-flow.md and docs/how-to/dynamic-shapes.md.
#include <graphsink/graphsink.h>

#include <array>
#include <cmath>
#include <functional>
#include <iostream>
#include <vector>
namespace gs = graphsink;

static const gs::DeviceId device = gs::cuda_device_count() > 0 ? gs::cuda(0) : gs::cpu();

static bool loops() {
  // [while]
  gs::Graph g;
  gs::Value a = g.input("a", gs::f32, {});
  // Newton's method for the square root of a, until it is close.
  auto far = [&](const gs::Value& u, const gs::Value&) {
    gs::Value error = u * u - a;
    return error * error > 1e-8;
  };
  auto improve = [&](const gs::Value& u, const gs::Value& n) { return std::array{0.5 * (u + a / u), n + 1}; };
  gs::Value none = g.constant(gs::Tensor::scalar<std::int32_t>(0));
  auto [root, iterations] = gs::while_({a, none}, far, improve, {.max_iterations = 50});
  // [while]
  g.output("root", root);
  g.output("iterations", iterations);
  // [while-grad]
  g.output("gradient", gs::grad(root, {a})[0]);  // back through the iterations that were run
  // [while-grad]
  gs::Program program = gs::compile(g, {.target = device});
  program.write(a, gs::Tensor::scalar(2.0f));
  for (int i = 0; i < 2; ++i) program.run();
  std::cout << "root " << program.output("root").at(0) << " after " << program.output("iterations").at(0)
            << " iterations, gradient " << program.output("gradient").at(0) << "\n";
  return std::abs(program.output("root").at(0) - std::sqrt(2.0)) < 1e-4 &&
         std::abs(program.output("gradient").at(0) - 0.5 / std::sqrt(2.0)) < 1e-3;
}

static bool scans() {
  gs::Graph g;
  gs::Variable w("w", gs::Tensor::kaiming({8, 8}, 1));
  gs::Value xs = g.input("xs", gs::f32, {20, 4, 8}), h0 = g.constant(gs::Tensor(gs::f32, {4, 8}));
  // [scan]
  // A recurrent layer over 20 slices [4, 8]: the state, and what is kept of each iteration.
  gs::Scan run = gs::scan({h0}, {xs}, [&](const gs::Values& state, const gs::Values& slices) {
    gs::Value h = tanh(matmul(state[0], w) + slices[0]);
    return gs::Scan{.state = {h}, .outputs = {h}};
  });
  gs::Value last = run.state[0], all = run.outputs[0];  // [4, 8] and [20, 4, 8]
  gs::sgd(mean(all * all), {w}, {.lr = 0.1});
  // [scan]
  g.output("last", last);
  gs::Program program = gs::compile(g, {.target = device});
  program.write(xs, gs::Tensor::uniform({20, 4, 8}, 3, -1.0f, 1.0f));
  program.run();
  program.run();
  return program.plan().sinks_whole && program.output("last").shape() == gs::Shape{4, 8};
}

static bool branches() {
  gs::Graph g;
  // [if]
  gs::Value x = g.input("x", gs::f32, {4}), limit = g.input("limit", gs::f32, {});
  gs::Variable large("large", gs::Tensor::scalar(0.0f));
  gs::Value y = gs::if_(
      sum(x) > limit,
      [&] {
        assign(large, g.value(large) + 1.0);  // counts if this body runs
        return x / sum(x);
      },
      [&] { return x; });
  // [if]
  // [switch]
  gs::Value which = g.input("which", gs::i32, {});
  const std::vector<std::function<gs::Value()>> bodies{[&] { return relu(y); }, [&] { return tanh(y); }};
  gs::Value z = gs::switch_(which, bodies);
  // [switch]
  g.output("z", z);
  gs::Program program = gs::compile(g, {.target = device});
  program.write(x, std::vector<float>{1, 2, 3, 4});
  program.write(which, gs::Tensor::scalar<std::int32_t>(0));
  for (const float bound : {100.0f, 5.0f}) {
    program.write(limit, gs::Tensor::scalar(bound));
    program.run();
  }
  const bool is_good = program.output("z").at(0) == 0.1f && large.read().at(0) == 1.0;
  program.write(which, gs::Tensor::scalar<std::int32_t>(7));
  program.run();
  try {
    program.sync();
  } catch (const gs::Error& e) {
    std::cout << e.what() << "\n";
  }
  return is_good && program.steps() == 2;
}

static bool buckets() {
  // [open]
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {gs::open(32, gs::next_power_of_two()), 16});
  gs::Value t = g.input("t", gs::i32, {gs::open(32, gs::next_power_of_two())});
  gs::Variable w("w", gs::Tensor::kaiming({16, 4}, 1));
  gs::Value losses = cross_entropy(matmul(x, w), t, {.per_row = true});
  gs::Value loss = masked_mean(losses, valid_mask(x, 0));  // padding is left out of the loss and its gradient
  gs::sgd(loss, {w}, {.lr = 0.1});
  g.record("loss", loss);
  gs::Program program = gs::compile(g, {.target = device});
  for (std::int64_t rows : {20, 31, 17, 5, 29, 32}) {
    program.write(x, gs::Tensor::uniform({rows, 16}, 3, -1.0f, 1.0f));
    program.write(t, gs::Tensor(gs::i32, {rows}));
    program.run();
  }
  program.sync();
  std::cout << program.counters().cached_shapes << " sets of shapes for six sizes\n";  // 32 and 8
  // [open]
  return program.counters().cached_shapes == 2;
}

static bool selects() {
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {64});
  // [select]
  gs::Padded few = masked_select(x, x > 0.0, 64);                        // an upper bound: always one launch
  gs::Padded some = masked_select(x, x > 0.5, gs::next_power_of_two());  // planned for the size of the step before
  gs::Value loss = mean(few) + mean(some);                               // padding has no part in it
  // [select]
  g.output("loss", loss);
  g.output("found", some.count);
  gs::Program program = gs::compile(g, {.target = device});
  program.write(x, gs::Tensor::uniform({64}, 5, -1.0f, 1.0f));
  program.run();
  return program.output("found").at(0) > 0 && std::isfinite(program.output("loss").at(0));
}

int main() try {
  return loops() && scans() && branches() && buckets() && selects() ? 0 : 1;
} catch (const gs::Error& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
