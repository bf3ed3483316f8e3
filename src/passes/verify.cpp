#include <algorithm>
#include <iterator>
#include <map>

#include "base/at.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

class Verification {
 public:
  Verification(const GraphData& graph, const InputShapes& shapes) : graph_(graph) {
    ir_.nodes.resize(graph.nodes.size());
    live_stacks_.resize(graph.regions.size());
    for (const auto& [node, shape] : shapes) shapes_[node] = shape;
  }

  PlannerIr run() {
    mark_live();
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id)
      if (ir_.nodes[id].is_live) copy_node(id);
    for (std::size_t r = 0; r < graph_.regions.size(); ++r) {
      const Region& region = graph_.regions[r];
      ir_.regions.push_back({live_nodes(region), region.parameters, region.results, std::move(live_stacks_[r]), -1});
    }
    ir_.variables = graph_.variables;
    ir_.variable_index = graph_.variable_index;
    ir_.records = graph_.records;
    for (const NamedValue& output : graph_.outputs) ir_.outputs.push_back({output.name, output.value, output.value});
    return std::move(ir_);
  }

 private:
  void mark(ValueRef v, std::vector<int>& work) {
    if (graph_.nodes[at(v.node)].op == &while_op) mark_stack(v, work);
    if (ir_.node(v).is_live) return;
    ir_.node(v).is_live = true;
    work.push_back(v.node);
  }

  // Of the stacks of a loop, those that are used are computed.
  void mark_stack(ValueRef v, std::vector<int>& work) {
    const int body = graph_.nodes[at(v.node)].bodies[0];
    const Region& region = graph_.regions[at(body)];
    const int number = v.output - static_cast<int>(region.parameters.size());
    auto& live = live_stacks_[at(body)];
    auto is_it = [&](const IrStacked& known) { return known.output == v.output; };
    if (number < 0 || std::any_of(live.begin(), live.end(), is_it)) return;
    const auto& [value, place] = region.stacked[at(number)];
    live.push_back({value, place, v.output, false});
    mark(value, work);
    mark(place, work);
  }

  // Tells whether the node itself or one of its bodies has an effect on the host.
  bool has_effect(const Node& node) const {
    if (node.op->traits.host_effect) return true;
    for (int body : node.bodies)
      for (int id : graph_.regions[at(body)].nodes)
        if (has_effect(graph_.nodes[at(id)])) return true;
    return false;
  }

  void mark_live() {
    std::vector<int> work;
    for (const NamedValue& named : graph_.records) mark(named.value, work);
    for (const NamedValue& named : graph_.outputs) mark(named.value, work);
    for (const VariableUse& use : graph_.variables)
      if (use.assigned.node >= 0) mark(use.assigned, work), mark(use.read, work);
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      if (node.region != 0) continue;
      if (has_effect(node) || writes_variables(*node.op, node.inputs.size())) mark({static_cast<int>(id), 0}, work);
    }
    while (!work.empty()) {
      const Node& node = graph_.nodes[at(work.back())];
      work.pop_back();
      for (ValueRef input : node.inputs) mark(input, work);
      for (int body : node.bodies) {
        const Region& region = graph_.regions[at(body)];
        for (ValueRef v : region.parameters) mark(v, work);
        for (ValueRef v : region.results) mark(v, work);
        for (int id : region.nodes)
          if (has_effect(graph_.nodes[at(id)])) mark({id, 0}, work);
      }
    }
  }

  const TensorType& type(ValueRef v) const { return ir_.type(v); }

  std::vector<int> live_nodes(const Region& region) const {
    std::vector<int> live;
    std::copy_if(region.nodes.begin(), region.nodes.end(), std::back_inserter(live),
                 [&](int id) { return ir_.nodes[at(id)].is_live; });
    return live;
  }

  void copy_node(std::size_t id) {
    const Node& node = graph_.nodes[id];
    IrNode& copy = ir_.nodes[id];
    copy.op = node.op;
    copy.attrs = node.attrs;
    copy.inputs = node.inputs;
    copy.bodies = node.bodies;
    copy.region = node.region;
    copy.placement = node.placement;
    copy.where = node.where;
    copy.origin = graph_.origin_of(static_cast<int>(id));
    copy.is_inside = node.is_inside;
    copy.outputs = infer(static_cast<int>(id));
    expect_known_sizes(node, copy.outputs);
  }

  std::vector<TensorType> infer(int id) {
    const Node& node = graph_.nodes[at(id)];
    if (node.op == &parameter_op) return {type(node.attrs.as<ParameterAttrs>().initial)};
    if (auto given = shapes_.find(id); given != shapes_.end()) return {{node.outputs[0].dtype, given->second}};
    if (node.op == &while_op) {
      std::vector<TensorType> out;
      const auto& results = graph_.regions[at(node.bodies[0])].results;
      for (std::size_t i = 0; i + 1 < node.inputs.size(); ++i) {
        out.push_back(type(node.inputs[i]));
        expect_same(node, out.back(), type(results[i]));
      }
      for (std::size_t k = out.size(); k < node.outputs.size(); ++k) out.push_back(stack_type(node, k));
      return out;
    }
    if (is_branch(*node.op)) {
      std::vector<TensorType> out;
      for (ValueRef v : graph_.regions[at(node.bodies[0])].results) out.push_back(type(v));
      for (int body : node.bodies)
        for (std::size_t i = 0; i < out.size(); ++i)
          expect_same(node, out[i], type(graph_.regions[at(body)].results[i]));
      return out;
    }
    input_types_.clear();
    for (ValueRef v : node.inputs) input_types_.push_back(type(v));
    InferArgs infer(node.op->name, input_types_, node.attrs, node.where);
    infer_outputs(*node.op, infer);
    return std::move(infer.outputs());
  }

  // The type of a loop's output that stacks a value. Of one that is not used it is not known, and not asked for.
  TensorType stack_type(const Node& node, std::size_t output) const {
    const Region& body = graph_.regions[at(node.bodies[0])];
    const ValueRef value = body.stacked[output - body.parameters.size()].value;
    if (!ir_.node(value).is_live) return node.outputs[output];
    Shape shape{body.limit};
    for (std::int64_t dim : type(value).shape.dims()) shape.push_back(dim);
    return {type(value).dtype, shape};
  }

  // While building the graph, the user may have read the size of any dimension that is not open. So these sizes must
  // stay the same.
  void expect_known_sizes(const Node& node, const std::vector<TensorType>& types) const {
    for (std::size_t j = 0; j < types.size(); ++j) {
      const TensorType& known = node.outputs[j];
      bool fits = types[j].dtype == known.dtype && types[j].shape.rank() == known.shape.rank();
      for (int d = 0; fits && d < known.shape.rank(); ++d)
        fits = known.shape.is_open(d) || known.shape[d] == types[j].shape[d];
      if (!fits)
        throw Error(std::string(node.op->name), node.where,
                    "with these input shapes it makes " + to_string(types[j]) + ", and the graph was built for " +
                        to_string(known),
                    "write other sizes, or give open() an example at which the size of this result follows it");
    }
  }

  static void expect_same(const Node& node, const TensorType& a, const TensorType& b) {
    if (a != b) {
      throw Error(std::string(node.op->name), node.where,
                  "with these input shapes a body returns " + to_string(b) + " where " + to_string(a) + " is expected",
                  "make the body independent of the open dimension");
    }
  }

  const GraphData& graph_;
  std::map<int, Shape> shapes_;
  PlannerIr ir_;
  std::vector<std::vector<IrStacked>> live_stacks_;  // by region
  std::vector<TensorType> input_types_;              // of the current node; a member, so that its memory is reused
};

}  // namespace

PlannerIr verify(const GraphData& graph, const InputShapes& shapes) { return Verification(graph, shapes).run(); }

}  // namespace graphsink
