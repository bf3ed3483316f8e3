// Why a step does not sink, and what to do about it: docs/how-to/not-sinking.md.
#include <graphsink/graphsink.h>

#include <iostream>
#include <string>
namespace gs = graphsink;

static void infer(gs::InferArgs& a) { a.out(a.in(0).dtype, a.in(0).shape); }
static void body(const gs::CpuArgs& a) {
  for (std::int64_t i = 0; i < a.in_type(0).shape.size(); ++i) a.out<float>(0)[i] = a.in<float>(0)[i] + 1;
}
static const gs::OpDef plus_one_op{.name = "plus_one", .infer = infer, .bodies = {body}};

int main() try {
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {256});
  g.output("y", relu(gs::emit(plus_one_op, {tanh(x)})[0]));
  const gs::DeviceId device = gs::cuda_device_count() > 0 ? gs::cuda(0) : gs::cpu();

  // [reasons]
  gs::Program program = gs::compile(g, {.target = device});
  const gs::PlanSummary plan = program.plan();
  std::cout << plan.launches_per_step << " launch a step, " << plan.host_nodes << " op on the host\n";
  for (const gs::Reason& reason : plan.reasons)
    std::cout << reason.what << ": " << reason.why << "\n  costs " << reason.cost << "; " << reason.remedy << "\n";
  // [reasons]

  // [counters]
  program.write(x, gs::Tensor(gs::f32, {256}));
  for (int i = 0; i < 10; ++i) program.run();
  program.sync();
  const gs::Counters counters = program.counters();
  std::cout << counters.captures << " capture, " << counters.graph_launches << " launches, " << counters.fallbacks
            << " fallbacks\n";
  // [counters]
  if (counters.captures < 1 || counters.fallbacks != 0) return 1;

  // [require]
  gs::Graph whole;
  gs::Value z = whole.input("z", gs::f32, {4});
  auto far = [](const gs::Value& u) { return sum(u) < 100.0; };
  auto step = [](const gs::Value& u) { return gs::emit(plus_one_op, {u})[0]; };
  whole.output("z", gs::while_({z}, far, step)[0]);
  try {
    gs::compile(whole, {.target = device, .require_whole_graph = true});
    std::cout << "the step is one launch\n";
  } catch (const gs::Error& e) {
    std::cout << e.what() << "\n";
  }
  // [require]
} catch (const gs::Error& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
