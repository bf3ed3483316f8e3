// The gradient of a loop with a limit is a loop that goes back through its iterations. The loop itself keeps its state
// of each iteration in stacks. Each iteration of the gradient takes that state, computes the values of the iteration
// again, and walks back through them. Gradients of the state are handed on from iteration to iteration; those of what
// the body takes from outside are added up; those of slices are stacked.
#include <algorithm>

#include "base/at.h"
#include "build/backward.h"
#include "build/counted_loop.h"
#include "graphsink/ops.h"
#include "ir/control.h"
#include "kernels/runtime/stack.h"

namespace graphsink {

struct Backward::LoopGradient {
  LoopGradient(Backward& backward, int id, const Node& node)
      : b(backward),
        graph(*backward.graph_),
        id(id),
        node(node),
        body(graph.regions[at(node.bodies[0])]),
        upstream(backward.grads_[at(id)]),
        captured(backward.captured_by(node)) {
    upstream.resize(node.outputs.size());
    for (std::size_t j = 0; j < body.parameters.size(); ++j)
      if (b.depends_(body.parameters[j])) active.push_back(j);
  }

  void run() {
    const Value count = output(body.parameters.size() - 1), last = sub(arg(count), Arg(1, b.where_));
    std::vector<Arg> init;
    for (std::size_t j : active) init.push_back(arg(upstream[j].valid() ? upstream[j] : b.zeros_like(output(j))));
    for (ValueRef v : captured.values) init.push_back(arg(b.zeros_like(graph.value(v))));
    std::vector<Stacked> of_slices;
    const Values result = counted_loop(
        "grad", graph, init, [&](const Values& state) { return less(arg(state.back()), arg(count)); },
        [&](const Values& state) { return go_back(state, sub(arg(last), arg(state.back())), of_slices); }, body.limit,
        node.where);
    std::size_t i = 0;
    for (std::size_t j : active) {
      if (b.depends_(node.inputs[j])) b.accumulate(node.inputs[j], result[i]);
      ++i;
    }
    for (ValueRef v : captured.values) b.accumulate(v, result[i++]);
    for (std::size_t k = 0; k < of_slices.size(); ++k) {
      const ValueRef stack = graph.nodes[at(captured.slices[k])].inputs[0];
      b.accumulate(stack, graph.value(stacked_output(graph, result[0].node(), of_slices[k])));
    }
  }

 private:
  Arg arg(const Value& v) const { return {v, node.where}; }
  Value output(std::size_t j) { return graph.value({id, static_cast<int>(j)}); }
  Value slice(const Value& stack, const Value& place) { return emit(slice_at_op, {arg(stack), arg(place)})[0]; }
  static ValueRef ref(const Value& v) { return {v.node(), v.output()}; }

  // The state that the iteration began with.
  std::vector<ValueRef> state_at(const Value& iteration) {
    std::vector<ValueRef> state;
    for (ValueRef parameter : body.parameters) {
      if (parameter == body.counter.now) {
        state.push_back(ref(iteration));
      } else {
        const ValueRef stack = stacked_output(graph, id, {parameter, body.counter.now});
        state.push_back(ref(slice(graph.value(stack), iteration)));
      }
    }
    return state;
  }

  // One iteration: the gradients of the state and of what is captured, from those that `sums` holds.
  Values go_back(const Values& sums, const Value& iteration, std::vector<Stacked>& of_slices) {
    const std::vector<ValueRef> state = state_at(iteration);
    const int first = static_cast<int>(graph.nodes.size());
    const BodyCopy copy_of(graph, node.bodies[0], b.where_, state);
    std::vector<ValueRef> values, targets;
    std::vector<Value> of_values;
    for (std::size_t i = 0; i < active.size(); ++i) {
      values.push_back(copy_of(body.results[active[i]]));
      of_values.push_back(sums[i]);
      targets.push_back(state[active[i]]);
    }
    for (std::size_t k = 0; k < body.stacked.size(); ++k) {
      const Value& of_stack = upstream[body.parameters.size() + k];
      if (!of_stack.valid()) continue;
      values.push_back(copy_of(body.stacked[k].value));
      of_values.push_back(slice(of_stack, graph.value(copy_of(body.stacked[k].place))));
    }
    targets.insert(targets.end(), captured.values.begin(), captured.values.end());
    for (int made : captured.slices) targets.push_back(copy_of({made, 0}));
    Values gradients = Backward(b.graph_, targets, b.where_).run_body(values, of_values, first);
    const std::size_t kept = active.size() + captured.values.size();
    for (std::size_t k = 0; k < captured.slices.size(); ++k) {
      const ValueRef place = copy_of(graph.nodes[at(captured.slices[k])].inputs[1]);
      of_slices.push_back({ref(gradients[kept + k]), place});
    }
    gradients.resize(kept);
    for (std::size_t i = active.size(); i < kept; ++i) gradients[i] = add(arg(sums[i]), arg(gradients[i]));
    return gradients;
  }

  Backward& b;
  GraphData& graph;
  int id;
  const Node& node;
  const Region body;            // a copy: the graph grows
  std::vector<Value> upstream;  // of the outputs; invalid: none
  const Captured captured;
  std::vector<std::size_t> active;  // numbers of the states through which gradients flow
};

void Backward::step_loop(int id, const Node& node) {
  for (std::size_t j = 0; j < node.outputs.size(); ++j) {
    if (!grads_[at(id)][j].valid() || !depends_({id, static_cast<int>(j)})) continue;
    if (graph_->regions[at(node.bodies[0])].limit == 0) refuse_loop(node, j);
    return LoopGradient(*this, id, node).run();
  }
}

void Backward::refuse_loop(const Node& node, std::size_t output) const {
  throw Error(std::string(node.op->name), node.where,
              "has no gradient without a limit on its iterations, and grad() at " + to_string(where_) +
                  " must pass through " + inside(node, output),
              "give the loop .max_iterations, or keep it out of the path from the loss to the parameters");
}

}  // namespace graphsink
