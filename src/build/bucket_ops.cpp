// The true sizes of inputs whose sizes are rounded up.
#include "base/at.h"
#include "graphsink/ops.h"
#include "ir/graph_data.h"

namespace graphsink {
namespace {

// The node that stands for that size; -1: there is none yet.
int size_node(const GraphData& graph, int input, int axis) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op != &input_op) continue;
    const auto& attrs = graph.nodes[i].attrs.as<InputAttrs>();
    if (attrs.size_of == input && attrs.axis == axis) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

Value true_size(const Value& input, int axis, Where where) {
  if (!input.valid()) throw Error("true_size", where, "an empty Value", "pass an input of a graph");
  if (input.eager()) return dim(Arg(input, where), axis);
  GraphData& graph = *input.graph();
  const Node& node = graph.nodes[at(input.node())];
  if (node.op == &feed_op) {
    throw Error("true_size", where, "the Value is a feed, which has no bucket", "take the size with dim()");
  }
  if (node.op != &input_op) {
    throw Error("true_size", where, "the Value is a result of " + std::string(node.op->name) + ", not an input",
                "pass the input itself; dim() tells the sizes of other values");
  }
  const auto& attrs = node.attrs.as<InputAttrs>();
  const int rank = static_cast<int>(attrs.dims.size());
  const int from_front = axis < 0 ? axis + rank : axis;
  if (from_front < 0 || from_front >= rank) {
    throw Error("true_size", where,
                "axis " + std::to_string(axis) + " of \"" + attrs.name + "\", " + to_string(input.type()),
                "count axes from 0, or from -1 at the back");
  }
  if (attrs.dims[at(from_front)].bucket.is_every_size()) return dim(Arg(input, where), from_front);
  if (int known = size_node(graph, input.node(), from_front); known >= 0) return graph.value({known, 0});
  InputAttrs size{attrs.name + ": size of axis " + std::to_string(from_front), DType::i32, {}};
  size.size_of = input.node();
  size.axis = from_front;
  return add_input(graph, std::move(size), where);
}

Value valid_mask(const Value& input, int axis, Where where) {
  const Value size = true_size(input, axis, where);
  return less(Arg(arange(Arg(input, where), axis), where), Arg(size, where));
}

}  // namespace graphsink
