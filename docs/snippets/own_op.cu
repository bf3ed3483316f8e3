// An op with a CPU body, a CUDA body, attributes and a gradient: docs/how-to/own-op.md. nvcc compiles it; without a
// CUDA toolkit it is C++, and the CPU body runs.
#include <graphsink/graphsink.h>
#include <graphsink/kernel.h>

#include <cmath>
#include <iostream>
#include <tuple>
#include <vector>
namespace gs = graphsink;

// [attrs]
struct Leak {  // what the op is told beside its operands
  float slope;
  static auto fields(auto& s) { return std::tie("slope", s.slope); }  // compares it, prints it, writes it to files
};
// [attrs]

// [infer]
static void infer(gs::InferArgs& a) {
  a.expect_inputs(1);
  gs::expect_dtype<float>(a, 0);
  a.out(a.in(0).dtype, a.in(0).shape);
}
// [infer]

// [cpu]
static void cpu_body(const gs::CpuArgs& a) {
  const auto* x = a.in<float>(0);
  auto* y = a.out<float>(0);
  const float slope = a.attrs<Leak>().slope;
  for (std::int64_t i = 0; i < a.in_type(0).shape.size(); ++i) y[i] = x[i] < 0 ? slope * x[i] : x[i];
}
// [cpu]

// [cuda]
__global__ void leaky_kernel(float slope, const float* x, float* y, std::int64_t size) {
  for (std::int64_t i = gs::thread_index(); i < size; i += gs::all_threads()) y[i] = x[i] < 0 ? slope * x[i] : x[i];
}

static void cuda_body(gs::CudaArgs& a) {  // only enqueues: it neither allocates nor waits
  const std::int64_t size = a.in_type(0).shape.size();
  a.launch(leaky_kernel, gs::launch_size(size), a.attrs<Leak>().slope, a.in<float>(0), a.out<float>(0), size);
}
// [cuda]

// [grad]
// Is called while the graph is built. The gradient is made of Values, so it sinks, and has a gradient itself.
static std::vector<gs::Value> gradient(const gs::GradArgs& a) {
  const gs::Value& x = a.inputs[0];
  return {where(x < 0.0, a.grads[0] * a.attrs.as<Leak>().slope, a.grads[0])};
}
// [grad]

// [op]
static const gs::OpDef leaky_op{.name = "leaky",
                                .infer = infer,
                                .prepare = gs::load_kernels<leaky_kernel>,  // kernels are loaded before a capture
                                .bodies = {cpu_body, cuda_body},
                                .grad = gradient};

static gs::Value leaky(const gs::Arg& x, float slope) { return gs::emit(leaky_op, {x}, Leak{slope})[0]; }
// [op]

int main() try {
  // [use]
  gs::Graph g;
  gs::Variable w("w", gs::Tensor({-2.0f, -1.0f, 3.0f}));
  gs::Value loss = sum(leaky(g.value(w), 0.5f) * leaky(g.value(w), 0.5f));
  g.output("gradient", gs::grad(loss, {w})[0]);
  gs::sgd(loss, {w}, {.lr = 0.1});
  g.record("loss", loss);
  gs::Program program = gs::compile(g, {.target = gs::cuda_device_count() > 0 ? gs::cuda(0) : gs::cpu()});
  program.run();
  std::cout << "gradient " << program.output("gradient") << "\n";
  program.run(gs::sink, {.steps = 9});
  std::cout << program.plan().launches_per_step << " launch a step, loss " << program.records("loss").back() << "\n";
  // [use]

  // [check]
  // The gradient against differences of the loss.
  const std::vector<double> at{-0.7, 0.3, 1.1};
  auto loss_at = [&](std::size_t moved, double by) {
    std::vector<float> values(at.begin(), at.end());
    values[moved] += static_cast<float>(by);
    gs::Eager eager;
    return gs::Eager::read(sum(exp(leaky(eager.tensor(gs::Tensor({3}, values)), 0.5f)))).at(0);
  };
  gs::Graph check;
  gs::Value x = check.input("x", gs::f32, {3});
  check.output("d", gs::grad(sum(exp(leaky(x, 0.5f))), {x})[0]);
  gs::Program differentiated = gs::compile(check);
  differentiated.write(x, std::vector<float>(at.begin(), at.end()));
  differentiated.run();
  const gs::Tensor d = differentiated.output("d");
  for (std::size_t i = 0; i < 3; ++i)
    if (std::abs(d.at(static_cast<std::int64_t>(i)) - (loss_at(i, 1e-2) - loss_at(i, -1e-2)) / 2e-2) > 1e-2) return 1;
  // [check]
  return 0;
} catch (const gs::Error& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
