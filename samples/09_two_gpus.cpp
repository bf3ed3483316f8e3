// Two branches of one training step on two GPUs. Placements say where ops run, copies are inserted where values cross,
// and the whole is still one launch. On a machine with one GPU, or none, the same program runs there.
#include <graphsink/graphsink.h>

#include <iostream>
namespace gs = graphsink;

int main() try {
  int devices = gs::cuda_device_count();
  gs::Placement second = devices > 1 ? gs::on_device(1) : gs::on_device;
  gs::CompileOptions options;
  if (devices > 0) options.target = gs::cuda(0);
  if (devices > 1) options.further_devices = {gs::cuda(1)};

  gs::Graph g;
  gs::Value x = g.feed("x", gs::f32, {64, 32}), wanted = g.feed("wanted", gs::f32, {64, 1});
  gs::Variable w1("w1", gs::Tensor::kaiming({32, 64}, 1)), w2("w2", gs::Tensor::kaiming({32, 64}, 2));
  gs::Variable v1("v1", gs::Tensor::kaiming({64, 1}, 3)), v2("v2", gs::Tensor::kaiming({64, 1}, 4));
  // The two branches are independent until their results are added. So they run side by side, forwards and backwards.
  gs::Value here = matmul(tanh(matmul(x, w1), gs::on_device), v1);
  gs::Value there = matmul(relu(matmul(x, w2), second), v2, {}, second);
  gs::Value error = add(here, there, gs::on_device) - wanted;
  gs::Value loss = mean(error * error);
  g.record("loss", loss);
  gs::sgd(loss, {w1, w2, v1, v2}, {.lr = 0.02f});

  gs::Program program = gs::compile(g, options);
  std::cout << program.explain();
  constexpr std::int64_t kSteps = 100;
  gs::Tensor inputs = gs::Tensor::uniform({kSteps, 64, 32}, 5, -1.0f, 1.0f), sums(gs::f32, {kSteps, 64, 1});
  for (std::size_t i = 0; i < sums.as<float>().size(); ++i)  // the function to learn: the sum of the first two inputs
    sums.as<float>()[i] = inputs.as<float>()[32 * i] + inputs.as<float>()[32 * i + 1];
  program.write(x, inputs);
  program.write(wanted, sums);
  program.run(gs::sink, {.steps = kSteps});
  std::vector<float> losses = program.records("loss");
  std::cout << devices << " GPUs at hand: " << losses.size() << " steps, loss " << losses.front() << " -> "
            << losses.back() << "\n";
  return std::cout.flush() ? 0 : 2;  // a full disk would lose what was printed
} catch (const gs::Error& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 2;
}
