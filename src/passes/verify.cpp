#include <map>

#include "base/at.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

// The whole graph, with the types that the user saw.
PlannerIr copy_of(const GraphData& graph) {
  PlannerIr ir;
  ir.nodes.reserve(graph.nodes.size());
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    IrNode& copy = ir.nodes.emplace_back();
    copy.op = node.op;
    copy.attrs = node.attrs;
    copy.inputs = node.inputs;
    copy.outputs = node.outputs;
    copy.bodies = node.bodies;
    copy.where = node.where;
    copy.placement = node.placement;
    copy.region = node.region;
    copy.origin = graph.origin_of(static_cast<int>(id));
    copy.is_inside = node.is_inside;
    copy.is_live = true;
  }
  for (const Region& region : graph.regions) {
    ir.regions.push_back({region.nodes, region.parameters, region.results, {}, -1});
    auto output = static_cast<int>(region.parameters.size());
    for (const Stacked& stacked : region.stacked)
      ir.regions.back().stacked.push_back({stacked.value, stacked.place, output++, false});
  }
  ir.variables = graph.variables;
  ir.variable_index = graph.variable_index;
  ir.records = graph.records;
  ir.stops = graph.stops;
  for (const NamedValue& output : graph.outputs) ir.outputs.push_back({output.name, output.value, output.value});
  return ir;
}

// Finds the types of all live nodes, with the sizes that their open inputs have.
class Inference {
 public:
  Inference(const GraphData& graph, const InputShapes& shapes, PlannerIr& ir)
      : graph_(graph), shapes_(shapes.begin(), shapes.end()), ir_(ir) {}

  void run() {
    for (const IrNode& node : ir_.nodes)
      if (node.is_live && node.op == &while_op) find_initial_values(node);
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id) {
      IrNode& node = ir_.nodes[id];
      if (!node.is_live) continue;
      std::vector<TensorType> types = infer(static_cast<int>(id));
      expect_known_sizes(node, types);
      node.outputs = std::move(types);
    }
  }

 private:
  const TensorType& type(ValueRef v) const { return ir_.type(v); }

  void find_initial_values(const IrNode& loop) {
    const std::vector<ValueRef>& parameters = ir_.regions[at(loop.bodies[0])].parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) initial_[parameters[i].node] = loop.inputs[i];
  }

  std::vector<TensorType> infer(int id) {
    const IrNode& node = ir_.nodes[at(id)];
    if (node.op == &parameter_op) return {type(initial_.at(id))};
    if (auto given = shapes_.find(id); given != shapes_.end()) return {{node.outputs[0].dtype, given->second}};
    if (node.op == &while_op) return types_of_loop(node);
    if (is_branch(*node.op)) return types_of_branch(node);
    input_types_.clear();
    for (ValueRef v : node.inputs) input_types_.push_back(type(v));
    InferArgs infer(node.op->name, input_types_, node.attrs, node.where);
    infer_outputs(*node.op, infer);
    return std::move(infer.outputs());
  }

  std::vector<TensorType> types_of_branch(const IrNode& node) const {
    std::vector<TensorType> types = ir_.types(ir_.regions[at(node.bodies[0])].results);
    for (int body : node.bodies)
      for (std::size_t i = 0; i < types.size(); ++i)
        expect_same(node, types[i], type(ir_.regions[at(body)].results[i]));
    return types;
  }

  std::vector<TensorType> types_of_loop(const IrNode& node) const {
    const IrRegion& body = ir_.regions[at(node.bodies[0])];
    std::vector<TensorType> types;
    for (std::size_t i = 0; i < body.parameters.size(); ++i) {
      types.push_back(type(node.inputs[i]));
      expect_same(node, types.back(), type(body.results[i]));
    }
    for (const IrStacked& stacked : body.stacked) {
      Shape shape{graph_.regions[at(node.bodies[0])].limit};
      for (std::int64_t dim : type(stacked.value).shape.dims()) shape.push_back(dim);
      types.push_back({type(stacked.value).dtype, shape});
    }
    return types;
  }

  // While building the graph, the user may have read the size of any dimension that is not open. So these sizes must
  // stay the same.
  static void expect_known_sizes(const IrNode& node, const std::vector<TensorType>& types) {
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

  static void expect_same(const IrNode& node, const TensorType& a, const TensorType& b) {
    if (a != b) {
      throw Error(std::string(node.op->name), node.where,
                  "with these input shapes a body returns " + to_string(b) + " where " + to_string(a) + " is expected",
                  "make the body independent of the open dimension");
    }
  }

  const GraphData& graph_;
  const std::map<int, Shape> shapes_;
  PlannerIr& ir_;
  std::map<int, ValueRef> initial_;      // by parameter of a loop
  std::vector<TensorType> input_types_;  // input types of the current node; a member, so that its memory is reused
};

}  // namespace

PlannerIr verify(const GraphData& graph, const InputShapes& shapes) {
  PlannerIr ir = copy_of(graph);
  drop_unused(ir);
  Inference(graph, shapes, ir).run();
  return ir;
}

}  // namespace graphsink
