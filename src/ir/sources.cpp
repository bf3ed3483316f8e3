// Nodes that stand for memory: inputs, constants, Variables, and what a step and a loop know of themselves.
#include <limits>
#include <optional>
#include <utility>

#include "base/at.h"
#include "base/printable.h"
#include "ir/graph_data.h"

namespace graphsink {
namespace {

void infer_input(InferArgs& a) {
  const auto& attrs = a.attrs<InputAttrs>();
  Shape shape;
  for (const Dim& dim : attrs.dims) {
    if (dim.size < 0 && !dim.bucket.is_every_size())
      a.fail("the example of a dimension of \"" + attrs.name + "\" is larger than all of its bucket, " +
                 to_string(dim.bucket),
             "add a larger size");
    if (dim.size < 0)
      a.fail("a dimension of \"" + attrs.name + "\" is " + std::to_string(dim.size), "give sizes of at least 0");
    shape.push_back(dim.size);
  }
  a.out(attrs.dtype, shape);
}

void infer_constant(InferArgs& a) {
  const TensorType& type = a.attrs<ConstantAttrs>().tensor->type();
  a.out(type.dtype, type.shape);
}

void infer_variable(InferArgs& a) {
  const TensorType& type = a.attrs<VariableAttrs>().variable.type();
  a.out(type.dtype, type.shape);
}

void infer_step(InferArgs& a) { a.out(DType::i32, {}); }

void infer_random_state(InferArgs& a) { a.out(DType::i32, {2}); }

void infer_parameter(InferArgs& a) {
  const TensorType& type = a.attrs<ParameterAttrs>().type;
  a.out(type.dtype, type.shape);
}

// The dimensions of an input in one of the trials.
TensorType in_trial(const GraphData& graph, const InputAttrs& attrs, std::size_t trial) {
  TensorType type{attrs.dtype, {}};
  for (const Dim& dim : attrs.dims) {
    bool is_doubled = dim.is_open && (trial == 1 || (trial > 1 && graph.open_examples[trial - 2] == dim.size));
    std::int64_t twice = dim.size > std::numeric_limits<std::int64_t>::max() / 2 ? dim.size : 2 * dim.size;
    type.shape.push_back(dim.is_open && trial == 0 ? 1 : is_doubled ? twice : dim.size);
  }
  return type;
}

void mark_open_dimensions(GraphData& graph, Node& node) {
  constexpr std::size_t kMost = 8;  // each is another trial of all ops
  const auto& attrs = node.attrs.as<InputAttrs>();
  for (std::size_t i = 0; i < attrs.dims.size(); ++i) {
    if (!attrs.dims[i].is_open) continue;
    node.outputs[0].shape.mark_open(static_cast<int>(i));
    bool is_known = std::ranges::count(graph.open_examples, attrs.dims[i].size) > 0;
    if (!is_known && graph.open_examples.size() < kMost) graph.open_examples.push_back(attrs.dims[i].size);
  }
  if (!node.outputs[0].shape.has_open()) return;
  for (std::size_t k = 0; k < graph.trials(); ++k) node.trials.push_back({in_trial(graph, attrs, k)});
}

// The name by which a user gives data to a source. Inputs that hold a size have none.
std::optional<std::string> name_of_input(const OpDef& op, const Attrs& attrs) {
  if (&op != &input_op && &op != &feed_op) return {};
  const auto& input = attrs.as<InputAttrs>();
  return input.size_of >= 0 || input.is_result_size ? std::nullopt : std::optional(input.name);
}

}  // namespace

const OpDef input_op{.name = "input", .infer = infer_input};
const OpDef feed_op{.name = "feed", .infer = infer_input};
const OpDef constant_op{.name = "constant", .infer = infer_constant};
const OpDef variable_op{.name = "variable", .infer = infer_variable};
const OpDef step_op{.name = "step", .infer = infer_step};
const OpDef random_state_op{.name = "random_state", .infer = infer_random_state};
const OpDef parameter_op{.name = "parameter", .infer = infer_parameter};

Value add_source(GraphData& graph, const OpDef& op, Attrs attrs, const Where& where) {
  const std::optional<std::string> name = name_of_input(op, attrs);
  if (const auto used = name ? graph.input_names.find(*name) : graph.input_names.end(); used != graph.input_names.end())
    throw Error(std::string(op.name), where,
                "the name \"" + shortened(*name) + "\" was used at " + to_string(used->second), "choose another name");
  InferArgs infer(op.name, {}, attrs, where);
  infer_outputs(op, infer);
  Node node;
  node.op = &op;
  node.attrs = std::move(attrs);
  node.outputs = std::move(infer.outputs());
  node.where = where;
  if (&op == &input_op || &op == &feed_op) mark_open_dimensions(graph, node);
  // Sources stand for memory that outlives any body, wherever they were first named.
  int region = &op == &parameter_op ? graph.current_region : 0;
  int saved = std::exchange(graph.current_region, region);
  int id = graph.add_node(std::move(node));
  graph.current_region = saved;
  if (name) graph.input_names.emplace(*name, where);
  return graph.value({id, 0});
}

}  // namespace graphsink
