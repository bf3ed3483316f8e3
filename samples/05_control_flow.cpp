// A loop and a branch as nodes. They are part of the launch if the device can hold them; otherwise the host decides
// them.
#include <graphsink/graphsink.h>

#include <iostream>
namespace gs = graphsink;

int main() try {
  gs::Graph g;
  gs::Value u0 = g.input("u0", gs::f32, {});
  gs::Value zero = g.constant(gs::Tensor::scalar<std::int32_t>(0));

  // Newton's method for the square root of 2, until it is close.
  auto far = [](gs::Value u, gs::Value) {
    gs::Value error = u * u - 2.0;
    return error * error > 1e-12;
  };
  auto improve = [](gs::Value u, gs::Value it) { return std::array{0.5 * (u + 2.0 / u), it + 1}; };
  auto [root, iterations] = gs::while_({u0, zero}, far, improve);

  // Only one of the two bodies runs.
  gs::Value rounded = gs::if_(
      iterations > 5, [&] { return root * 1000.0; }, [&] { return root * 10.0; });
  g.output("root", root);
  g.output("iterations", iterations);
  g.output("rounded", rounded);

  gs::Program program = gs::compile(g, {.target = gs::cuda_device_count() > 0 ? gs::cuda(0) : gs::cpu()});
  std::cout << program.explain();
  for (gs::Mode mode : {gs::interactive, gs::sink, gs::sink}) {
    for (float start : {1.0f, 100.0f}) {
      program.write(u0, gs::Tensor::scalar(start));
      program.run(mode);
      std::cout << gs::to_string(mode) << " from " << start << ": root " << program.output("root").at(0) << " after "
                << program.output("iterations").at(0) << " iterations, branch gives " << program.output("rounded").at(0)
                << "\n";
    }
  }
  if (auto captured = program.captured())
    std::cout << "the launch holds " << captured->conditional_nodes << " conditional nodes\n";
  return std::cout.flush() ? 0 : 2;  // a full disk would lose what was printed
} catch (const gs::Error& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 2;
}
