// Checkpoints and program files: docs/how-to/checkpoints.md.
#include <graphsink/graphsink.h>

#include <iostream>
#include <vector>
namespace gs = graphsink;

struct Model {
  gs::Graph graph;
  gs::Value x;
};

static Model model() {
  gs::Graph g;
  gs::Variable w("w", gs::Tensor::kaiming({16, 16}, 1));
  gs::Value x = g.input("x", gs::f32, {8, 16});
  gs::Value y = dropout(tanh(matmul(x, w)), 0.2);
  gs::Value loss = mean(y * y);
  gs::adamw(loss, {w}, {.lr = 1e-2});
  g.record("loss", loss);
  return {g, x};
}

int main() try {
  const gs::Tensor data = gs::Tensor::uniform({8, 16}, 3, -1.0f, 1.0f);
  auto [graph, x] = model();
  gs::Program program = gs::compile(graph, {.seed = 5});
  program.write(x, data);
  program.run(gs::sink, {.steps = 10});
  // [save]
  gs::Checkpoint checkpoint = gs::snapshot(program);  // Variables by name, and the number of the next step; waits
  checkpoint.metadata["model"] = "one layer";
  gs::write_checkpoint("run.safetensors", checkpoint);
  // [save]
  program.run(gs::sink, {.steps = 10});
  const std::vector<float> undisturbed = program.records("loss");

  // [resume]
  auto [same, again] = model();
  gs::Program resumed = gs::compile(same, {.seed = 5});  // the same seed: it is not in the file
  gs::restore(resumed, gs::read_checkpoint("run.safetensors"));
  resumed.write(again, data);
  resumed.run(gs::sink, {.steps = 10});  // steps 10 to 19
  // [resume]
  const std::vector<float> losses = resumed.records("loss");
  if (losses != std::vector<float>(undisturbed.begin() + 10, undisturbed.end())) return 1;  // bit for bit
  if (resumed.steps() != 20) return 1;

  // [parts]
  // Weights alone, for another program: the moments of the optimizer are not read, and the step stays.
  gs::Graph use;
  gs::Variable w("w", gs::Tensor(gs::f32, {16, 16}));
  use.output("y", tanh(matmul(use.input("x", gs::f32, {1, 16}), w)));
  const std::vector<gs::Variable> weights{w};
  const gs::Restored read =
      gs::restore(weights, gs::read_checkpoint("run.safetensors"), {.allow_unused = true, .without_step = true});
  std::cout << read.loaded.size() << " loaded, " << read.unused.size() << " unused\n";
  // [parts]
  if (read.loaded.size() != 1) return 1;

  // [error]
  gs::Variable other("other", gs::Tensor(gs::f32, {4}));
  const std::vector<gs::Variable> others{other};
  try {
    gs::restore(others, gs::read_checkpoint("run.safetensors"), {.allow_unused = true});
  } catch (const gs::Error& e) {
    std::cout << e.what() << "\n";
  }
  // [error]

  // [graph]
  gs::write_graph("model.safetensors", model().graph);           // the graph with its Variables
  gs::LoadedGraph loaded = gs::read_graph("model.safetensors");  // knows nothing of model()
  gs::Program elsewhere = gs::compile(loaded.graph, {.seed = 5});
  elsewhere.write(loaded.inputs.at("x"), data);
  elsewhere.run(gs::sink, {.steps = 10});
  // [graph]
  const std::vector<float> first(undisturbed.begin(), undisturbed.begin() + 10);
  return elsewhere.records("loss") == first ? 0 : 1;
} catch (const gs::Error& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
