// The words of docs/concepts.md in one program.
#include <graphsink/graphsink.h>

#include <iostream>
#include <string>
#include <vector>
namespace gs = graphsink;

static gs::Value layer(const gs::Value& x, std::int64_t in, std::int64_t out, std::uint64_t seed) {
  // [scope]
  const gs::Scope scope("layer" + std::to_string(seed));
  gs::Variable w("w", gs::Tensor::kaiming({in, out}, seed));  // its name is "layer1/w", "layer2/w"
  // [scope]
  return matmul(x, w);
}

int main() try {
  // [graph]
  gs::Graph g;
  gs::Value x = g.feed("x", gs::f32, {32, 16});   // one slice for each step of a run
  gs::Value rate = g.input("rate", gs::f32, {});  // the same for all steps of a run
  gs::Variable w("w", gs::Tensor::kaiming({16, 1}, 1)), seen("seen", gs::Tensor::scalar(0.0f));
  gs::Value y = matmul(x, w);
  gs::Value loss = mean(y * y);
  gs::sgd(loss, {w}, {.lr = rate});    // gradients, update and commit are nodes of the graph
  assign(seen, g.value(seen) + 32.0);  // another Variable that each step changes
  g.record("loss", loss);
  g.output("y", y);
  // [graph]
  gs::Graph named;
  named.output("y", relu(layer(layer(named.input("x", gs::f32, {4, 8}), 8, 8, 1), 8, 8, 2)));
  const std::string scoped = gs::compile(named).explain();
  if (scoped.find("in layer1") == std::string::npos) return 1;

  // [program]
  gs::Program program = gs::compile(g, {.target = gs::cuda_device_count() > 0 ? gs::cuda(0) : gs::cpu()});
  program.write(rate, gs::Tensor::scalar(0.05f));
  program.write(x, gs::Tensor::uniform({8, 32, 16}, 7, -1.0f, 1.0f));  // 8 slices
  program.run(gs::interactive, {.steps = 8});                          // op by op
  program.write(x, gs::Tensor::uniform({8, 32, 16}, 8, -1.0f, 1.0f));
  program.run(gs::sink, {.steps = 8});  // one launch
  // [program]

  // [records]
  const std::vector<float> losses = program.records("loss");  // waits; one value for each of the 16 steps
  const gs::Tensor last = program.output("y");                // of the last step alone
  std::cout << program.steps() << " steps, loss " << losses.front() << " -> " << losses.back() << "\n";
  // [records]
  if (losses.size() != 16 || program.steps() != 16 || seen.read().at(0) != 512.0) return 1;
  if (!(last.shape() == gs::Shape{32, 1}) || losses.back() >= losses.front()) return 1;

  // [explain]
  std::cout << program.explain();
  const gs::PlanSummary plan = program.plan();
  std::cout << plan.launches_per_step << " launch a step, " << plan.islands << " island\n";
  for (const gs::Reason& reason : plan.reasons) std::cout << reason.what << ": " << reason.why << "\n";
  // [explain]
  if (!plan.sinks_whole || plan.launches_per_step != 1 || !plan.reasons.empty()) return 1;
} catch (const gs::Error& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
