// Removes nodes, and states and stacks of loops, that nothing needs. A state is needed if the loop's condition, an
// effect or a used result depends on it.
#include <algorithm>
#include <utility>

#include "base/at.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

class Dropping {
 public:
  explicit Dropping(PlannerIr& ir)
      : ir_(ir), is_needed_(ir.nodes.size()), has_effect_(ir.nodes.size()), state_of_(ir.nodes.size()) {
    needed_outputs_.resize(ir.nodes.size());
    for (std::size_t id = 0; id < ir.nodes.size(); ++id)
      if (ir.nodes[id].op == &while_op) needed_outputs_[id].resize(ir.nodes[id].outputs.size());
  }

  void run() {
    find_effects();
    find_states();
    mark_roots();
    while (!nodes_.empty() || !outputs_.empty()) {
      if (!outputs_.empty()) {
        mark_state(taken_from(outputs_));
      } else {
        mark_operands(ir_.nodes[at(taken_from(nodes_))]);
      }
    }
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id) {
      IrNode& node = ir_.nodes[id];
      node.is_live = node.is_live && is_needed_[id];
      if (node.is_live && node.op == &while_op) drop_states(static_cast<int>(id));
      if (!node.is_live)
        for (int body : node.bodies) ir_.regions[at(body)] = {};
    }
    for (IrRegion& region : ir_.regions)
      std::erase_if(region.nodes, [&](int id) { return !ir_.nodes[at(id)].is_live; });
    replace_uses(ir_, replacements_);
  }

 private:
  // The loop that a parameter belongs to, and which of its states it is.
  struct State {
    int loop = -1;
    int number = 0;
  };

  template <class T>
  static T taken_from(std::vector<T>& list) {
    const T last = list.back();
    list.pop_back();
    return last;
  }

  void find_effects() {
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id) {
      const IrNode& node = ir_.nodes[id];
      if (!node.is_live) continue;
      bool has_any = node.op->traits.host_effect;
      for (int body : node.bodies)
        for (int inner : ir_.regions[at(body)].nodes) has_any = has_any || has_effect_[at(inner)];
      has_effect_[id] = has_any;
    }
  }

  void find_states() {
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id) {
      const IrNode& node = ir_.nodes[id];
      if (!node.is_live || node.op != &while_op) continue;
      const auto& parameters = ir_.regions[at(node.bodies[0])].parameters;
      for (std::size_t j = 0; j < parameters.size(); ++j)
        state_of_[at(parameters[j].node)] = {static_cast<int>(id), static_cast<int>(j)};
    }
  }

  void mark_roots() {
    for (const NamedValue& record : ir_.records) mark(record.value);
    for (const NamedValue& stop : ir_.stops) mark(stop.value);
    for (const IrOutput& output : ir_.outputs) mark(output.value);
    for (const VariableUse& use : ir_.variables)
      if (use.assigned.node >= 0) mark(use.assigned), mark(use.read);
    for (int id : ir_.regions[0].nodes) {
      const IrNode& node = ir_.nodes[at(id)];
      if (has_effect_[at(id)] || writes_variables(*node.op, node.inputs.size())) mark_node(id);
    }
  }

  // Returns false if the node was marked before.
  bool mark_node(int id) {
    if (is_needed_[at(id)] || !ir_.nodes[at(id)].is_live) return false;
    is_needed_[at(id)] = true;
    nodes_.push_back(id);
    return true;
  }

  void mark(ValueRef v) {
    const IrNode& node = ir_.node(v);
    const bool is_new = mark_node(v.node);
    if (node.op == &parameter_op && is_new) {
      const State& state = state_of_[at(v.node)];
      if (state.loop >= 0) mark({state.loop, state.number});
    }
    if (node.op == &while_op) mark_output(v);
  }

  void mark_output(ValueRef v) {
    auto needed = needed_outputs_[at(v.node)].begin() + v.output;
    if (!*needed) outputs_.push_back(v);
    *needed = true;
  }

  // Marks what an output of a loop is made of.
  void mark_state(ValueRef v) {
    const IrNode& node = ir_.node(v);
    const IrRegion& body = ir_.regions[at(node.bodies[0])];
    if (at(v.output) < body.parameters.size()) {
      mark(node.inputs[at(v.output)]);
      mark(body.parameters[at(v.output)]);
      mark(body.results[at(v.output)]);
      return;
    }
    for (const IrStacked& stacked : body.stacked)
      if (stacked.output == v.output) mark(stacked.value), mark(stacked.place);
  }

  void mark_operands(const IrNode& node) {
    if (node.op == &while_op) {
      mark(node.inputs.back());
      mark(ir_.regions[at(node.bodies[0])].results.back());
    } else {
      for (ValueRef v : node.inputs) mark(v);
    }
    for (int body : node.bodies) {
      const IrRegion& region = ir_.regions[at(body)];
      if (node.op != &while_op)
        for (ValueRef v : region.results) mark(v);
      for (int id : region.nodes)
        if (has_effect_[at(id)]) mark_node(id);
    }
  }

  void drop_states(int id) {
    const std::vector<bool>& needed = needed_outputs_[at(id)];
    std::vector<int> places(needed.size(), -1);  // by output: its new number; -1: it is dropped
    int kept = 0;
    for (std::size_t j = 0; j < needed.size(); ++j) {
      if (!needed[j]) continue;
      places[j] = kept++;
      if (places[j] != static_cast<int>(j)) replacements_[{id, static_cast<int>(j)}] = {id, places[j]};
    }
    if (at(kept) == needed.size()) return;
    IrNode& loop = ir_.nodes[at(id)];
    IrRegion& body = ir_.regions[at(loop.bodies[0])];
    const std::size_t states = body.parameters.size();
    auto keep = [&](auto& list, std::size_t count) {  // the rest stays
      std::size_t j = 0, next = 0;
      for (; j < list.size(); ++j)
        if (j >= count || needed[j]) list[next++] = std::move(list[j]);
      list.resize(next);
    };
    keep(loop.inputs, states);
    keep(body.parameters, states);
    keep(body.results, states);
    keep(loop.outputs, needed.size());
    std::erase_if(body.stacked, [&](const IrStacked& stacked) { return !needed[at(stacked.output)]; });
    for (IrStacked& stacked : body.stacked) stacked.output = places[at(stacked.output)];
  }

  PlannerIr& ir_;
  std::vector<bool> is_needed_, has_effect_;       // by node
  std::vector<State> state_of_;                    // by node
  std::vector<std::vector<bool>> needed_outputs_;  // by node; of loops
  // Nodes, and outputs of loops, that are marked, and their operands not yet. Loops that use each other's results may
  // be many, so these are lists, and there is no recursion.
  std::vector<int> nodes_;
  std::vector<ValueRef> outputs_;  // outputs of loops
  Replacements replacements_;
};

}  // namespace

void drop_unused(PlannerIr& ir) { Dropping(ir).run(); }

}  // namespace graphsink
