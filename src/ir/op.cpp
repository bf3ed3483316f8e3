#include "graphsink/op.h"

#include <cxxabi.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <typeinfo>

#include "base/at.h"
#include "base/convert.h"
#include "base/number_text.h"
#include "ir/bound_node.h"
#include "ir/call_of_op.h"
#include "ir/call_prepare.h"
#include "ir/count_tiles.h"
#include "ir/graph_data.h"
#include "ir/step_state.h"

namespace graphsink {

std::string to_string(StepError error, std::int64_t index) {
  switch (error) {
    case StepError::not_finite:
      return "element " + std::to_string(index) + " is not finite";
    case StepError::index:
      return "index " + std::to_string(index) + " lies outside the axis";
    case StepError::target:
      return "target " + std::to_string(index) + " is not a class";
    case StepError::iterations:
      return "its condition still held after " + std::to_string(index) + " iterations";
    case StepError::body:
      return "index " + std::to_string(index) + " is the number of none of its bodies";
    case StepError::size:
      return "it found " + std::to_string(index) + " elements, and its result has no room for them";
    case StepError::stopped:
      return "its condition held";
    case StepError::other_rank: {
      const ErrorOfRank why = unpacked(index);
      return "the step failed on rank " + std::to_string(why.rank) + ": " +
             (why.error == StepError::unknown ? "an op failed" : to_string(why.error, why.index));
    }
    case StepError::other_stop:
      return "the condition of stop_when() held on " +
             (index < 0 ? "this rank, and not on rank " + std::to_string(-1 - index)
                        : "rank " + std::to_string(index) + ", and not on this one");
    case StepError::other_step:
      return "rank " + std::to_string(index & 0xffff) + " is at step " + std::to_string(index >> 16) +
             ", and this one is not";
    case StepError::unknown:
      break;
  }
  return "its body failed the step and did not say why";
}

std::uint64_t bytes_moved(const BoundNode& node) {
  const auto operands = at(node.inputs + node.outputs);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < operands; ++i) {
    const Access access = i < at(node.inputs) ? access_of(*node.op, i, at(node.inputs)) : Access::read;
    if (access == Access::shape_only) continue;
    sum += node.types[i].bytes() * (access == Access::write ? 2 : 1);
  }
  return sum;
}

namespace {

// The graph that the operands belong to; Values of two graphs are refused.
std::shared_ptr<GraphData> graph_of(std::string_view op, std::span<const Arg> args) {
  std::shared_ptr<GraphData> graph;
  for (const Arg& arg : args) {
    if (const auto* variable = std::get_if<Variable>(&arg.content())) require_valid(*variable, op, arg.where());
    const auto* value = std::get_if<Value>(&arg.content());
    if (value == nullptr) continue;
    if (!value->valid()) {
      throw Error(std::string(op), arg.where(), "an operand is a default-constructed or moved-from Value",
                  "use a Value that an op returned");
    }
    if (graph && graph != value->graph()) {
      throw Error(std::string(op), arg.where(), "the operands belong to two graphs",
                  "build both in one graph, or carry the data over with Program::output() and write()");
    }
    graph = value->graph();
  }
  if (!graph) {
    throw Error(std::string(op), args.empty() ? Where() : args[0].where(), "no operand is a Value of a graph",
                "use graph.value(variable) or graph.constant(tensor) for one of them; for an Eager, "
                "eager.tensor(variable.read())");
  }
  return graph;
}

// The dtype of a Value or Variable; nothing for a number.
std::optional<DType> dtype_of_tensor(const Arg& arg) {
  if (const auto* value = std::get_if<Value>(&arg.content())) return value->dtype();
  if (const auto* variable = std::get_if<Variable>(&arg.content())) return variable->type().dtype;
  return std::nullopt;
}

// The dtype of the numbers among the operands, as Arg says.
DType number_dtype(std::span<const Arg> args, std::span<const Arg> peers) {
  for (const Arg& arg : args)
    if (auto dtype = dtype_of_tensor(arg); dtype && *dtype != DType::boolean) return *dtype;
  if (std::ranges::any_of(peers, [](const Arg& arg) { return dtype_of_tensor(arg).has_value(); }))
    return DType::boolean;
  return std::ranges::all_of(peers, &Arg::is_bool) ? DType::boolean : DType::f32;
}

Value number(GraphData& graph, std::string_view op, double x, DType dtype, const Where& where) {
  if (!holds(dtype, x)) {
    throw Error(std::string(op), where,
                "the number " + number_text(x) + " meets an operand of " + std::string(to_string(dtype)) +
                    ", which cannot hold it",
                "cast() that operand to a dtype that holds both, or pass another number");
  }
  if (graph.upload_now) return graph.upload_now(Tensor::full(dtype, {}, x));
  auto [entry, is_new] = graph.numbers.try_emplace({std::bit_cast<std::uint64_t>(x), dtype});
  if (is_new) {
    Value value = Graph(graph.shared_from_this()).constant(Tensor::full(dtype, {}, x), where);
    entry->second = {value.node(), value.output()};
  }
  return graph.value(entry->second);
}

// Nothing may come behind the commit, and nothing in it but stores: a step that fails has stored nothing.
void refuse_early_commit(const GraphData& graph, const OpDef& op, InferArgs& infer) {
  if (graph.current_region != 0)
    infer.fail("commits a Variable in " + graph.describe_body(graph.current_region), "move it outside of the body");
  if (op.traits.host_effect)
    infer.fail("commits a Variable and has a host effect, which no failed step can undo",
               "leave the effect to an op of its own, which reads the assigned value");
  if (!op.traits.capturable)
    infer.fail("commits a Variable and is declared as not capturable, but a commit is part of one launch",
               "leave what cannot be captured to an op of its own, which computes the new value");
  if (!infer.outputs().empty())
    infer.fail("commits a Variable and has outputs, which nobody could read before the step is over",
               "leave the outputs to an op of its own");
}

void commit_variable(GraphData& graph, const OpDef& op, ValueRef ref, const Where& where) {
  const Node& node = graph.nodes[at(ref.node)];
  if (node.op != &variable_op) {
    throw Error(std::string(op.name), where, "an operand that the op writes is not a Variable", "pass the Variable");
  }
  VariableUse& use = graph.use(node.attrs.as<VariableAttrs>().variable, where);
  if (use.committed || use.assigned.node >= 0) {
    throw Error(std::string(op.name), where,
                "\"" + use.variable.name() + "\" was already updated at " +
                    to_string(use.committed ? use.committed_where : use.assigned_where),
                "update it in one place");
  }
  use.committed = true;
  use.committed_where = where;
}

}  // namespace

namespace {

// "my::Attrs", where std::type_info::name() says "N2my5AttrsE".
std::string type_name(const std::type_info& type) {
  std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr), std::free);
  return name ? name.get() : type.name();
}

}  // namespace

void Attrs::throw_mismatch(const std::type_info& wanted) const {
  throw Error("attrs", Where(),
              (kind_ ? "the node's attributes are of type " + type_name(kind_->type) : "the node has no attributes") +
                  ", and its op reads " + type_name(wanted),
              "give emit() the struct that the op reads");
}

void BodyArgs::throw_no_step() const {
  throw Error(std::string(bound_node(*this).op->name), where(),
              "its body calls step(), and runs on the host of a device, which has the step in its own memory",
              "give the op a CUDA body, or make Graph::step() an operand of it");
}

std::int64_t count_tiles(const Tiles& tiles, const BodyArgs& a) {
  const std::int64_t count = tiles.count(a);
  if (count >= 0) return count;
  throw Error(std::string(bound_node(a).op->name), a.where(), "its Tiles::count returned " + std::to_string(count),
              "return the number of tiles, or 0 where there is nothing to compute");
}

std::uint64_t flops_of(const BodyArgs& a) {
  const OpDef& op = *bound_node(a).op;
  return op.flops ? call_of_op(op.name, a.where(), "OpDef::flops", [&] { return op.flops(a); }) : 0;
}

void run_all_tiles(const CpuArgs& a) {
  const Tiles& tiles = bound_node(a).op->bodies.cpu().tiles;
  tiles.run(a, 0, count_tiles(tiles, a));
  if (tiles.join && a.workspace_bytes() > 0) tiles.join(a);
}

std::int64_t count_part_tiles(const BodyArgs& a) {
  return std::max<std::int64_t>(1, (a.out_type(0).shape.size() + kTileElements - 1) / kTileElements);
}

void run_part_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const TensorType& type = a.out_type(0);
  const std::int64_t begin = first * kTileElements, size = std::min(end * kTileElements, type.shape.size()) - begin;
  std::byte* out = a.out<std::byte>(0) + begin * static_cast<std::int64_t>(size_of(type.dtype));
  if (size > 0) bound_node(a).op->bodies.cpu().part(a, begin, size, out);
}

void run_whole_part(const CpuArgs& a) {
  if (const std::int64_t size = a.out_type(0).shape.size(); size > 0)
    bound_node(a).op->bodies.cpu().part(a, 0, size, a.out<void>(0));
}

Prepared call_prepare(const OpDef& op, const PrepareArgs& args) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 60;  // as many for each stream can be added up
  Prepared prepared = op.prepare(args);
  if (prepared.workspace <= kMostBytes) return prepared;
  throw Error(std::string(op.name), args.where,
              "its prepare() asks for a workspace of " + std::to_string(prepared.workspace) +
                  " bytes, more than any memory has",
              "correct the number, which may be the result of a subtraction, or split the operands",
              ErrorCode::out_of_memory);
}

const OpBody* body_for(const OpDef& op, DeviceKind device, int capability) {
  const OpBody* best = nullptr;
  for (const OpBody& body : op.bodies) {
    const bool has_tiles = body.cpu != run_all_tiles || (body.tiles.count != nullptr && body.tiles.run != nullptr);
    bool is_set = (body.cpu != nullptr && has_tiles) || body.cuda != nullptr;
    bool fits = is_set && body.device == device && body.least_capability <= capability;
    if (fits && (best == nullptr || body.least_capability > best->least_capability)) best = &body;
  }
  return best;
}

const TensorType& InferArgs::in(int i) const {
  if (i < 0 || i >= inputs())
    fail("has no input " + std::to_string(i) + ", was given " + std::to_string(inputs()), "pass all inputs of the op");
  return inputs_[at(i)];
}

void InferArgs::fail(const std::string& problem, const std::string& remedy) const {
  std::string text = problem;
  constexpr std::size_t kMostListed = 16;
  const std::size_t all = listed_ < 0 ? inputs_.size() : at(listed_), listed = std::min(all, kMostListed);
  for (std::size_t i = 0; i < listed; ++i) text += (i ? ", " : ": ") + to_string(inputs_[i]);
  if (listed < all) text += ", and " + std::to_string(all - listed) + " more";
  throw Error(std::string(op_), where_, text, remedy);
}

void InferArgs::expect_inputs(int count) const {
  if (inputs() != count) {
    fail("takes " + std::to_string(count) + " inputs, was given " + std::to_string(inputs()),
         "pass " + std::to_string(count));
  }
}

void InferArgs::expect_same_dtype(int count) const {
  for (int i = 1; i < count; ++i) {
    if (in(i).dtype != in(0).dtype) fail("dtypes differ", "cast() one of them to a dtype that holds both");
  }
}

void InferArgs::expect_input(int i, const TensorType& type) const {
  if (in(i) != type) fail("input " + std::to_string(i) + " is not " + to_string(type), "pass one of that type");
}

void InferArgs::expect_input(int i, const Shape& shape) const {
  if (in(i).shape != shape) fail("input " + std::to_string(i) + " is not " + to_string(shape), "pass that shape");
}

std::vector<TensorType> InferArgs::outputs_of(void (*infer)(InferArgs&),
                                              std::initializer_list<TensorType> inputs) const {
  InferArgs other(op_, {inputs.begin(), inputs.size()}, attrs_, where_);
  infer(other);
  return std::move(other.outputs());
}

namespace {

bool is_dtype(DType dtype) { return static_cast<std::size_t>(dtype) <= static_cast<std::size_t>(DType::u8); }

}  // namespace

void infer_outputs(const OpDef& op, InferArgs& a) {
  if (op.infer == nullptr) a.fail("its OpDef has no .infer", "give it one that says the types of all outputs");
  if (op.bodies.has_too_many())
    a.fail("its .bodies are more than one for the CPU and " + std::to_string(OpBodies::kMostCuda) + " for CUDA",
           "leave one for the CPU, such as its Tiles, and those of the highest compute capabilities");
  try {
    op.infer(a);
    for (std::size_t i = 0; i < a.outputs().size(); ++i) {
      if (!is_dtype(a.outputs()[i].dtype))
        a.fail("output " + std::to_string(i) + " has no dtype that exists", "give a.out() one of DType");
      (void)a.outputs()[i].bytes();
    }
  } catch (const Error& e) {
    if (e.op() == op.name) throw;
    a.fail(e.problem(), e.remedy());  // error of a Shape, which does not know the op
  }
  if (op.traits.only_views && op.views.size() != a.outputs().size())
    a.fail("has .only_views, and outputs that are no views", "list all outputs in .views, or leave .only_views out");
  auto exists = [&](Alias alias) {
    return alias.input >= 0 && alias.input < a.inputs() && alias.output >= 0 &&
           alias.output < static_cast<int>(a.outputs().size());
  };
  for (Alias alias : op.in_place) {
    if (exists(alias)) continue;
    a.fail("output " + std::to_string(alias.output) + " may be in the place of input " + std::to_string(alias.input) +
               ", and one of the two does not exist",
           "correct .in_place of its OpDef");
  }
  for (auto [output, input] : op.views) {
    std::string_view problem;
    if (!exists({output, input})) {
      problem = "and one of the two does not exist";
    } else if (a.outputs()[at(output)].bytes() > a.in(input).bytes()) {
      problem = "and larger than it";
    }
    if (problem.empty()) continue;
    a.fail("output " + std::to_string(output) + " is a view of input " + std::to_string(input) + ", " +
               std::string(problem),
           "correct .views of its OpDef, or write the elements of the output");
  }
}

namespace {

// The outputs in one of the trials. One that the op refuses says nothing: they are as with the examples.
std::vector<TensorType> outputs_in_trial(const GraphData& graph, const Node& node, std::size_t trial) {
  std::vector<TensorType> inputs;
  inputs.reserve(node.inputs.size());
  for (ValueRef input : node.inputs) inputs.push_back(graph.type_in_trial(input, trial));
  InferArgs infer(node.op->name, inputs, node.attrs, node.where);
  try {
    infer_outputs(*node.op, infer);
  } catch (const std::exception&) {
    return node.outputs;
  }
  auto is_alike = [](const TensorType& a, const TensorType& b) {
    return a.dtype == b.dtype && a.shape.rank() == b.shape.rank();
  };
  return std::ranges::equal(infer.outputs(), node.outputs, is_alike) ? infer.outputs() : node.outputs;
}

// Marks the dimensions of the outputs that differ in a trial. Dimensions that this misses are refused when the program
// meets other sizes.
void find_open_dimensions(const GraphData& graph, Node& node) {
  auto is_open = [&](ValueRef input) { return graph.type(input).shape.has_open(); };
  if (std::ranges::none_of(node.inputs, is_open)) return;
  for (std::size_t k = 0; k < graph.trials(); ++k) node.trials.push_back(outputs_in_trial(graph, node, k));
  bool has_open = false;
  for (std::size_t j = 0; j < node.outputs.size(); ++j) {
    Shape examples = node.outputs[j].shape;
    for (int d = 0; d < examples.rank(); ++d) {
      auto differs = [&](const auto& outputs) { return outputs[j].shape[d] != examples[d]; };
      if (std::ranges::none_of(node.trials, differs)) continue;
      node.outputs[j].shape.mark_open(d);
      has_open = true;
    }
  }
  if (!has_open) node.trials.clear();
}

}  // namespace

std::vector<Value> operand_values(std::string_view op, std::span<const Arg> args) {
  return operand_values(op, args, args);
}

std::vector<Value> operand_values(std::string_view op, std::span<const Arg> args, std::span<const Arg> peers) {
  std::shared_ptr<GraphData> graph = graph_of(op, args);
  std::vector<Value> values;
  for (const Arg& arg : args) {
    if (const auto* value = std::get_if<Value>(&arg.content())) {
      values.push_back(*value);
    } else if (const auto* variable = std::get_if<Variable>(&arg.content())) {
      values.push_back(graph->upload_now ? graph->upload_now(variable->read())
                                         : Graph(graph).value(*variable, arg.where()));
    } else {
      values.push_back(number(*graph, op, std::get<double>(arg.content()), number_dtype(args, peers), arg.where()));
    }
  }
  return values;
}

void infer_node(GraphData& graph, Node& node, std::optional<std::size_t> outputs) {
  const OpDef& op = *node.op;
  std::vector<TensorType> types;
  types.reserve(node.inputs.size());
  for (ValueRef input : node.inputs) types.push_back({graph.type(input).dtype, graph.type(input).shape.examples()});
  InferArgs infer(op.name, types, node.attrs, node.where);
  infer_outputs(op, infer);
  if (outputs && infer.outputs().size() != *outputs)
    infer.fail("makes " + std::to_string(infer.outputs().size()) + " outputs, not " + std::to_string(*outputs),
               "build the node anew");
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (access_of(op, i, types.size()) != Access::write) continue;
    refuse_early_commit(graph, op, infer);
    commit_variable(graph, op, node.inputs[i], node.where);
  }
  node.outputs = std::move(infer.outputs());
  find_open_dimensions(graph, node);
}

std::vector<Value> emit(const OpDef& op, std::span<const Arg> args, Attrs attrs, Placement placement) {
  std::vector<Value> inputs = operand_values(op.name, args);
  Where where = args.empty() ? Where() : args[0].where();
  if (placement.device < 0)
    throw Error(std::string(op.name), where, "its placement is on_device(" + std::to_string(placement.device) + ")",
                "give the number of one of the program's devices, 0 for its target");
  std::shared_ptr<GraphData> graph = inputs[0].graph();
  if (graph->run_now) return graph->run_now(op, inputs, attrs, placement, where);

  Node node;
  for (const Value& value : inputs) node.inputs.push_back(graph->visible(value, op.name, where));
  node.op = &op;
  node.attrs = std::move(attrs);
  node.where = where;
  node.placement = placement;
  infer_node(*graph, node);
  std::size_t outputs = node.outputs.size();
  int id = graph->add_node(std::move(node));
  std::vector<Value> results;
  for (std::size_t i = 0; i < outputs; ++i) results.push_back(graph->value({id, static_cast<int>(i)}));
  return results;
}

std::vector<Value> emit(const OpDef& op, std::initializer_list<Arg> inputs, Attrs attrs, Placement placement) {
  return emit(op, std::span(inputs.begin(), inputs.size()), std::move(attrs), placement);
}

}  // namespace graphsink
