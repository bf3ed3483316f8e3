#include "graphsink/grad.h"

#include <algorithm>

#include "base/at.h"
#include "build/backward.h"
#include "build/dependence.h"
#include "ir/graph_data.h"

namespace graphsink {
namespace {

// A loss in the body of a loop may depend on what it is differentiated by through the loop's state: by its first value
// or by an earlier iteration, to which no gradient flows. Refuses that, as far as the body is known.
void refuse_state(const GraphData& graph, int loop, ValueRef loss, const std::vector<ValueRef>& outside,
                  const Where& where) {
  const Region& region = graph.regions[at(loop)];
  Dependence on_outside(graph, outside);
  for (ValueRef state : region.parameters) {
    if (!on_outside(state) || !Dependence(graph, std::span(&state, 1))(loss)) continue;
    throw Error(
        std::string(region.op->name), region.where,
        "grad() at " + to_string(where) + " is in the body, and its loss, " + graph.describe(loss) +
            ", depends on the state of the loop, which depends on what the gradient is for; no gradient flows "
            "through other iterations",
        "make what the gradient is for a part of the state, or write the iterations out with a loop of your language");
  }
}

// Checks the loops around, now and again when their bodies are complete.
void check_loops(GraphData& graph, ValueRef loss, const std::vector<ValueRef>& wrt, const Where& where) {
  for (int loop = graph.current_region; loop > 0; loop = graph.regions[at(loop)].parent) {
    if (!graph.regions[at(loop)].is_loop) continue;
    std::vector<ValueRef> outside;
    std::copy_if(wrt.begin(), wrt.end(), std::back_inserter(outside),
                 [&](ValueRef v) { return !graph.is_within(graph.nodes[at(v.node)].region, loop); });
    if (outside.empty()) return;
    refuse_state(graph, loop, loss, outside, where);
    graph.regions[at(loop)].checks.push_back(
        [=](const GraphData& complete) { refuse_state(complete, loop, loss, outside, where); });
  }
}

}  // namespace

std::vector<Value> grad(const Arg& loss, const std::vector<Arg>& wrt) {
  const auto* value = std::get_if<Value>(&loss.content());
  if (value == nullptr || !value->valid()) {
    throw Error("grad", loss.where(), "the loss is not a Value", "pass the result of an op");
  }
  const std::shared_ptr<GraphData>& graph = value->graph();
  if (graph->run_now) {
    throw Error("grad", loss.where(), "Values of an Eager keep no history", "build a Graph");
  }
  ValueRef from = graph->visible(*value, "grad", loss.where());
  if (const TensorType& type = graph->type(from); !is_float(type.dtype) || !is_single(type)) {
    throw Error("grad", loss.where(), "the loss is " + to_string(type) + ", not one float",
                "reduce it, for example with mean()");
  }
  std::vector<ValueRef> targets;
  for (const Arg& arg : wrt) {
    if (const auto* variable = std::get_if<Variable>(&arg.content())) {
      targets.push_back(graph->use(*variable, arg.where()).read);
    } else if (const auto* v = std::get_if<Value>(&arg.content()); v && v->valid() && v->graph() == graph) {
      targets.push_back(graph->visible(*v, "grad", arg.where()));
    } else {
      throw Error("grad", arg.where(), "with respect to something that is not a Value of the loss's graph",
                  "pass Values or Variables of that graph");
    }
    const TensorType& type = graph->type(targets.back());
    if (!is_float(type.dtype)) {
      throw Error("grad", arg.where(), "with respect to " + to_string(type), "pass floats");
    }
  }
  check_loops(*graph, from, targets, loss.where());
  // use() above may have added nodes: the walk covers them too.
  return Backward(graph, targets, loss.where()).run(from);
}

}  // namespace graphsink
