// Computes x + y - z with the sum on the CPU and the difference on the GPU, and then two branches side by side on both.
// Placements say where ops run, copies are inserted where values cross, and the whole is still one launch.
#include <graphsink/graphsink.h>

#include <algorithm>
#include <cmath>
#include <iostream>
namespace gs = graphsink;

int main() try {
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {4}), y = g.input("y", gs::f32, {4}), z = g.input("z", gs::f32, {4});

  gs::Value sum = add(x, y, gs::on_cpu);
  gs::Value difference = sub(sum, z, gs::on_device);
  g.output("x + y - z", difference);

  // The two branches are independent until the end. So they overlap in the parallel modes and in the launch.
  gs::Value here = x, there = x;
  for (int i = 0; i < 3; ++i) {
    here = tanh(here, gs::on_cpu);
    there = tanh(there, gs::on_device);
  }
  g.output("gap", here - there);

  gs::Program program = gs::compile(g, {.target = gs::cuda_device_count() > 0 ? gs::cuda(0) : gs::cpu()});
  std::cout << program.explain();
  program.write(x, std::vector<float>{1, 2, 3, 4});
  program.write(y, std::vector<float>{10, 20, 30, 40});
  program.write(z, std::vector<float>{0.5, 0.5, 0.5, 0.5});
  for (gs::Mode mode : gs::kAllModes) {
    program.run(mode);
    gs::Tensor gap = program.output("gap");  // tanh of two libraries: the last bits may differ
    std::cout << gs::to_string(mode) << ": x + y - z = " << program.output("x + y - z") << ", branches agree to "
              << std::max({1e-6, std::abs(gap.at(0)), std::abs(gap.at(3))}) << "\n";
  }
  if (auto captured = program.captured())
    std::cout << "the launch holds " << captured->kernels << " kernels, " << captured->copies << " copies, "
              << captured->host_nodes << " host nodes\n";
  return std::cout.flush() ? 0 : 2;  // a full disk would lose what was printed
} catch (const gs::Error& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 2;
}
