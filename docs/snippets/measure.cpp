// What a step takes, where it runs, and in whose memory: docs/how-to/profile.md, devices.md and streams-and-memory.md.
#include <graphsink/graphsink.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>
namespace gs = graphsink;

static const int gpus = gs::cuda_device_count();

static bool profiled() {
  gs::Graph g;
  gs::Variable w("w", gs::Tensor::kaiming({256, 256}, 1));
  gs::Value x = g.input("x", gs::f32, {32, 256});
  gs::sgd(mean(relu(matmul(x, w))), {w}, {.lr = 0.1});
  gs::Program program = gs::compile(g, {.target = gpus > 0 ? gs::cuda(0) : gs::cpu()});
  program.write(x, gs::Tensor(gs::f32, {32, 256}));
  program.run();
  // [times]
  for (const gs::OpTime& op : program.time_ops(20))  // runs 20 steps, op after op
    std::cout << op.op << " " << gs::line_of(op.where) << " " << op.us << " us, " << op.bytes << " bytes\n";
  // [times]
  // [memory]
  std::cout << gs::to_string(program.memory());  // before or after the first run
  // [memory]
  return program.steps() == 21;
}

static bool placed() {
  // [placements]
  gs::CompileOptions options;
  if (gpus > 0) options.target = gs::cuda(0);
  if (gpus > 1) options.further_devices = {gs::cuda(1)};
  const gs::Placement second = gpus > 1 ? gs::on_device(1) : gs::on_device;

  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {64, 32});
  gs::Variable w("w", gs::Tensor::kaiming({32, 32}, 1)), v("v", gs::Tensor::kaiming({32, 32}, 2));
  gs::Value here = tanh(matmul(x, w));               // on the target: nothing asks for another place
  gs::Value there = tanh(matmul(x, v, {}, second));  // on the second GPU; tanh runs where fewer bytes cross
  gs::Value sum = add(here, there, gs::on_cpu);      // on the host
  g.output("y", sum);
  gs::Program program = gs::compile(g, options);
  std::cout << program.explain();  // says where each op runs, why, and what is copied
  // [placements]
  program.write(x, gs::Tensor(gs::f32, {64, 32}));
  program.run();
  return program.output("y").at(0) == 0.0;
}

static bool placed_variable() {
  gs::CompileOptions options;
  if (gpus > 0) options.target = gs::cuda(0);
  if (gpus > 1) options.further_devices = {gs::cuda(1)};
  const gs::Placement second = gpus > 1 ? gs::on_device(1) : gs::on_device;
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {64, 32});
  // [placed-variable]
  gs::Variable w1("w1", gs::Tensor::kaiming({32, 32}, 1));          // on the target
  gs::Variable w2("w2", gs::Tensor::kaiming({32, 32}, 2), second);  // in memory of the second GPU
  gs::Value loss = mean(matmul(tanh(matmul(x, w1)), w2));           // what uses w2 follows it, where fewer bytes cross
  gs::adamw(loss, {w1, w2});  // moments live, and updates run and commit, where their parameter lives
  // [placed-variable]
  g.record("loss", loss);
  gs::Program program = gs::compile(g, options);
  program.write(x, gs::Tensor::uniform({64, 32}, 3));
  program.run();
  return program.records("loss").size() == 1;
}

// [stream]
// Between two pieces of work of yours on a CUDA stream: the host waits for neither.
[[maybe_unused]] static void step_on(gs::Program& program, const gs::Value& x, const gs::Tensor& batch,
                                     cudaStream_t stream) {
  program.write(x, batch, {.stream = stream});  // begins when what the stream was given is done
  program.run(gs::sink, {.stream = stream});    // what the stream is given later waits for the run
}
// [stream]

static bool bound() {
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {16}), y = x * 2.0;
  g.output("y", y);
  gs::Program program = gs::compile(g);  // on a GPU, with memory of cudaMalloc()
  // [bind]
  const std::size_t bytes = 16 * sizeof(float);
  auto allocate = [&] {  // begins at a multiple of Target::alignment
    const std::size_t alignment = program.target().alignment;
    return std::shared_ptr<float>(static_cast<float*>(std::aligned_alloc(alignment, bytes)), std::free);
  };
  const std::shared_ptr<float> from = allocate(), to = allocate();
  for (int i = 0; i < 16; ++i) from.get()[i] = static_cast<float>(i);
  program.bind_memory(x, from.get(), bytes, from);  // before the first run; the program keeps the owners
  program.bind_memory(y, to.get(), bytes, to);
  program.run();
  program.sync();
  std::cout << "y[3] = " << to.get()[3] << "\n";
  // [bind]
  return to.get()[3] == 6.0f;
}

int main() try { return profiled() && placed() && placed_variable() && bound() ? 0 : 1; } catch (const gs::Error& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
