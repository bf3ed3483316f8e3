#include "graphsink/graph.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>
#include <utility>

#include "base/at.h"
#include "base/in_body.h"
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

// The body would wait for the end of the step that it is part of.
void refuse_in_body(const Variable& variable, const std::string& call) {
  if (!InBody::here()) return;
  throw Error("Variable \"" + variable.name() + "\"", Where(), call + "() was called by the body of an op",
              "give the op the Variable's value as an operand, and assign() what it returns");
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

Value add_source(GraphData& graph, const OpDef& op, Attrs attrs, const Where& where) {
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
  return graph.value({id, 0});
}

void check_name(const std::vector<NamedValue>& taken, const std::string& name, const char* call, const Where& where) {
  for (const NamedValue& other : taken) {
    if (other.name == name) {
      throw Error(call, where, "the name \"" + name + "\" was used at " + to_string(other.where),
                  "choose another name");
    }
  }
}

// For a Value that is made in a body and used outside of it.
[[noreturn]] void refuse_inside(const GraphData& graph, ValueRef v, std::string_view op, const Where& where) {
  int region = graph.nodes[at(v.node)].region;
  const Region& body = graph.regions[at(region)];
  std::string control(body.op->name);
  throw Error(std::string(op), where,
              graph.describe(v) + " is in a body of the " + control + " at " + to_string(body.where) +
                  " and has no value outside of it",
              "return it from the body, or compute it before the " + control);
}

}  // namespace

const OpDef input_op{.name = "input", .infer = infer_input};
const OpDef feed_op{.name = "feed", .infer = infer_input};
const OpDef constant_op{.name = "constant", .infer = infer_constant};
const OpDef variable_op{.name = "variable", .infer = infer_variable};
const OpDef step_op{.name = "step", .infer = infer_step};
const OpDef random_state_op{.name = "random_state", .infer = infer_random_state};
const OpDef parameter_op{.name = "parameter", .infer = infer_parameter};

int GraphData::add_node(Node node) {
  int id = static_cast<int>(nodes.size());
  node.region = current_region;
  nodes.push_back(std::move(node));
  regions[at(current_region)].nodes.push_back(id);
  return id;
}

bool GraphData::is_within(int region, int outer) const {
  while (region != outer && region >= 0) region = regions[at(region)].parent;
  return region == outer;
}

std::string GraphData::describe(ValueRef v) const {
  const Node& node = nodes[at(v.node)];
  std::string name(node.op->name), place = to_string(node.where);
  return place.empty() ? name : name + " at " + place;
}

std::string GraphData::describe_body(int region) const {
  const Region& body = regions[at(region)];
  const std::string place = to_string(body.where);
  return "the body of the " + std::string(body.op->name) + (place.empty() ? "" : " at " + place);
}

ValueRef GraphData::visible(const Value& value, std::string_view op, const Where& where) const {
  const bool is_ours = value.valid() && value.graph().get() == this;
  if (!is_ours || value.node() < 0 || at(value.node()) >= nodes.size()) {
    const std::string seen = !value.valid()  ? "it is default-constructed or moved from"
                             : !is_ours      ? "it belongs to another graph"
                             : value.eager() ? "an Eager has computed it, and keeps no graph"
                                             : "it was made in a body that has been built again since";
    throw Error(std::string(op), where, "not a Value of this graph: " + seen,
                "pass a Value that an op of this graph returned");
  }
  ValueRef ref{value.node(), value.output()};
  if (!is_within(current_region, nodes[at(ref.node)].region)) refuse_inside(*this, ref, op, where);
  return ref;
}

TensorType GraphData::type_in_trial(ValueRef v, std::size_t trial) const {
  const Node& node = nodes[at(v.node)];
  if (trial < node.trials.size()) return node.trials[trial][at(v.output)];
  return {type(v).dtype, type(v).shape.examples()};  // it is older than the open dimension that the trial is about
}

void GraphData::set_outputs_like(Node& node, std::span<const ValueRef> values) const {
  node.outputs.clear();
  node.trials.assign(trials(), {});
  for (ValueRef v : values) {
    node.outputs.push_back(type(v));
    for (std::size_t k = 0; k < trials(); ++k) node.trials[k].push_back(type_in_trial(v, k));
  }
}

VariableUse& GraphData::use(const Variable& variable, const Where& where) {
  require_valid(variable, "Variable", where);
  auto [entry, is_new] = variable_index.try_emplace(variable.data().get(), static_cast<int>(variables.size()));
  if (is_new) {
    VariableUse use;
    use.variable = variable;
    use.read = {add_source(*this, variable_op, VariableAttrs{variable}, where).node(), 0};
    variables.push_back(std::move(use));
  }
  return variables[at(entry->second)];
}

void GraphData::note_start_of_body() {
  std::vector<ValueRef> now;
  for (const VariableUse& use : variables) now.push_back(use.assigned);
  assigned_at_start.resize(regions.size());
  assigned_at_start[at(current_region)] = std::move(now);
}

bool GraphData::is_assigned_here(const VariableUse& use) const {
  ValueRef start;
  if (current_region > 0) {
    const auto& known = assigned_at_start[at(current_region)];
    const auto number = at(static_cast<int>(&use - variables.data()));
    if (number < known.size()) start = known[number];
  }
  return !(use.assigned == start);
}

Variable GraphData::make_variable(const std::string& name, const Tensor& initial, const Where& where) {
  Variable made(name, initial, where);
  if (current_region == 0) return made;
  if (next_made < made_in_bodies.size()) {
    const Variable& known = made_in_bodies[next_made];
    if (known.name() == made.name() && known.type() == made.type()) return made_in_bodies[next_made++];
    made_in_bodies.resize(next_made);  // another call than when the body was built before
  }
  ++next_made;
  made_in_bodies.push_back(std::move(made));
  return made_in_bodies.back();
}

std::vector<Value> GraphData::random_sources(const std::function<Value(const Value&)>& next, const Where& where) {
  if (upload_now) {  // an Eager has no steps: its random ops are counted
    Tensor state(DType::i32, {2});
    state.as<std::int32_t>()[0] = random_ops_run++;
    return {upload_now(state)};
  }
  if (random_state.node < 0) random_state = {add_source(*this, random_state_op, {}, where).node(), 0};
  std::vector<Value> sources{value(random_state)};
  for (int r = current_region; r > 0; r = regions[at(r)].parent) {
    if (!regions[at(r)].is_loop) continue;
    if (regions[at(r)].counter.now.node < 0) {
      int inner = std::exchange(current_region, r);
      Value first = Graph(shared_from_this()).constant(Tensor::full(DType::i32, {}, 0.0), where);
      ValueRef initial{first.node(), first.output()};
      Value now = add_source(*this, parameter_op, ParameterAttrs{type(initial), initial}, where), after = next(now);
      current_region = inner;
      regions[at(r)].counter = {{first.node(), 0}, {now.node(), 0}, {after.node(), after.output()}};
    }
    sources.push_back(value(regions[at(r)].counter.now));
  }
  return sources;
}

TensorType Value::type(Where where) const {
  if (!valid()) {
    throw Error("Value", where, "a default-constructed or moved-from Value", "use a Value that an op returned");
  }
  return eager_ ? eager_->type : graph_->type({node_, output_});
}

void require_valid(const Variable& variable, std::string_view op, const Where& where) {
  if (variable.valid()) return;
  throw Error(std::string(op), where,
              "a Variable refers to nothing: it is default-constructed, moved from, or the lr of an optimizer whose "
              "learning rate is a schedule or is given elsewhere",
              "give it a name and an initial Tensor, or the optimizer a number as its learning rate");
}

Variable::Variable(std::string name, Tensor initial, Where where) : data_(std::make_shared<VariableData>()) {
  if (!where.scope().empty()) name.insert(0, "/").insert(0, where.scope());
  initial.require_valid("Variable \"" + name + "\"", where);
  if (!is_utf8(name)) {
    throw Error("Variable \"" + name + "\"", where, "its name is not UTF-8, so no checkpoint can hold it",
                "give a name in UTF-8");
  }
  data_->name = std::move(name);
  data_->type = initial.type();
  data_->value = std::move(initial);
}

const std::string& Variable::name(Where where) const {
  require_valid(*this, "Variable", where);
  return data_->name;
}

const TensorType& Variable::type(Where where) const {
  require_valid(*this, "Variable", where);
  return data_->type;
}

Tensor Variable::read(Where where) const {
  require_valid(*this, "Variable", where);
  refuse_in_body(*this, "read");
  std::lock_guard lock(data_->lock);
  Tensor value = data_->storage ? data_->storage->read() : data_->value;
  for (const auto& known : data_->writers)
    if (auto writer = known.lock()) writer->report_failed_step();
  return value;
}

void Variable::write(const Tensor& tensor, Where where) {
  require_valid(*this, "Variable", where);
  std::string op = "Variable \"" + name() + "\"";
  tensor.require_valid(op, where);
  if (tensor.type() != type()) {
    throw Error(op, where, "is " + to_string(type()) + ", was given " + to_string(tensor.type()),
                "write a tensor of its type");
  }
  refuse_in_body(*this, "write");
  std::lock_guard lock(data_->lock);
  if (data_->storage) {
    data_->storage->write(tensor);
  } else {
    data_->value = tensor;
  }
}

Arg::Arg(Value value, Where where) : content_(std::move(value)), where_(where) {}
Arg::Arg(Variable variable, Where where) : content_(std::move(variable)), where_(where) {}
Arg::Arg(double number, Where where) : content_(number), where_(where) {}
double Arg::exactly(std::int64_t number, const Where& where) {
  auto magnitude = static_cast<std::uint64_t>(number);
  return number < 0 ? -exactly(0 - magnitude, where) : exactly(magnitude, where);
}
double Arg::exactly(std::uint64_t number, const Where& where) {
  // A double holds 53 bits: those from the highest that is set down to the lowest.
  if (number != 0 && std::bit_width(number) - std::countr_zero(number) > std::numeric_limits<double>::digits) {
    throw Error("a number", where, std::to_string(number) + " would be rounded: numbers are of type double",
                "make it a constant of the graph: g.constant(Tensor::scalar(...))");
  }
  return static_cast<double>(number);
}
Arg::Arg(const Arg&) = default;
Arg::Arg(Arg&&) noexcept = default;
Arg& Arg::operator=(const Arg&) = default;
Arg& Arg::operator=(Arg&&) noexcept = default;
Arg::~Arg() = default;

Graph::Graph() : data_(std::make_shared<GraphData>()) {}

GraphData& data_of(const Graph& graph, const Where& where) {
  if (!graph.data()) throw Error("Graph", where, "a moved-from Graph", "use the Graph that it was moved to");
  if (graph.data()->run_now)
    throw Error("Graph", where, "it belongs to an Eager, which runs each op at once and keeps no graph",
                "build the ops in a Graph of its own");
  return *graph.data();
}

Value Graph::input(std::string name, DType dtype, std::initializer_list<Dim> dims, Where where) {
  return input(std::move(name), dtype, std::span(dims.begin(), dims.size()), where);
}
Value Graph::feed(std::string name, DType dtype, std::initializer_list<Dim> dims, Where where) {
  return feed(std::move(name), dtype, std::span(dims.begin(), dims.size()), where);
}

Value Graph::input(std::string name, DType dtype, std::span<const Dim> dims, Where where) {
  return add_input(data_of(*this, where), {std::move(name), dtype, {dims.begin(), dims.end()}}, where);
}
Value Graph::feed(std::string name, DType dtype, std::span<const Dim> dims, Where where) {
  for (const Dim& dim : dims) {
    if (dim.bucket.is_every_size()) continue;
    throw Error("feed(\"" + name + "\")", where, "a dimension has a bucket, " + to_string(dim.bucket),
                "make it an input, or open() without a bucket");
  }
  return add_source(data_of(*this, where), feed_op, InputAttrs{std::move(name), dtype, {dims.begin(), dims.end()}},
                    where);
}

namespace {
std::vector<Dim> dims_of(const Shape& shape) {
  std::vector<Dim> dims;
  for (int d = 0; d < shape.rank(); ++d) dims.emplace_back(shape.examples()[d], shape.is_open(d));
  return dims;
}
}  // namespace

Value Graph::input(std::string name, DType dtype, const Shape& shape, Where where) {
  return input(std::move(name), dtype, dims_of(shape), where);
}
Value Graph::feed(std::string name, DType dtype, const Shape& shape, Where where) {
  return feed(std::move(name), dtype, dims_of(shape), where);
}

Value add_input(GraphData& graph, InputAttrs attrs, const Where& where) {
  return add_source(graph, input_op, std::move(attrs), where);
}

Value Graph::constant(Tensor tensor, Where where) {
  tensor.require_valid("constant", where);
  ConstantAttrs attrs{std::make_shared<const Tensor>(std::move(tensor))};
  return add_source(data_of(*this, where), constant_op, std::move(attrs), where);
}

Value Graph::value(const Variable& variable, Where where) {
  VariableUse& use = data_of(*this, where).use(variable, where);
  if (use.committed) {
    throw Error("Variable \"" + variable.name() + "\"", where,
                "read after the optimizer at " + to_string(use.committed_where) + " has committed it",
                "read it before the optimizer call; what it is behind the step is updated(variable)");
  }
  return data_->value(use.assigned.node >= 0 ? use.assigned : use.read);
}

namespace {
// What the commit writes to the Variable.
Value committed_value(GraphData& graph, const VariableUse& use, const Where& where) {
  for (Update& update : graph.updates) {
    const auto found = std::ranges::find(update.variables, use.variable);
    if (found == update.variables.end()) continue;
    const auto output = static_cast<int>(found - update.variables.begin());
    if (update.node < 0) {
      std::vector<Arg> inputs;
      for (ValueRef v : update.inputs) inputs.emplace_back(graph.value(v), where);
      const int region = std::exchange(graph.current_region, 0);  // where the optimizer is, so that all bodies see it
      update.node = emit(*update.op, inputs, update.attrs)[0].node();
      graph.current_region = region;
    }
    return graph.value({update.node, output});
  }
  throw Error("updated", where,
              "\"" + use.variable.name() + "\" is written by an op at " + to_string(use.committed_where) +
                  " that has no outputs",
              "let an op compute the value as an output, and assign() that");
}
}  // namespace

Value Graph::updated(const Variable& variable, Where where) {
  GraphData& graph = data_of(*this, where);
  const VariableUse use = graph.use(variable, where);
  if (use.committed) return committed_value(graph, use, where);
  if (use.assigned.node < 0) {
    throw Error("updated", where, "nothing in this graph has updated \"" + variable.name() + "\" so far",
                "call it behind the optimizer or assign(), or read the Variable with value()");
  }
  return graph.value(use.assigned);
}

Value Graph::step(Where where) { return add_source(data_of(*this, where), step_op, {}, where); }

namespace {
ValueRef resolve(GraphData& graph, const Arg& arg, const char* call) {
  auto outside = [&](ValueRef ref) {
    if (graph.nodes[at(ref.node)].region != 0) refuse_inside(graph, ref, call, arg.where());
    return ref;
  };
  if (const auto* variable = std::get_if<Variable>(&arg.content())) {
    Value value = Graph(graph.shared_from_this()).value(*variable, arg.where());
    return outside({value.node(), value.output()});
  }
  const auto* value = std::get_if<Value>(&arg.content());
  if (value == nullptr) {
    throw Error(call, arg.where(), "not a Value of this graph", "pass a Value that an op of this graph returned");
  }
  return outside(graph.visible(*value, call, arg.where()));
}
}  // namespace

void Graph::record(std::string name, Arg value, const RecordOptions& options) {
  GraphData& graph = data_of(*this, value.where());
  check_name(graph.records, name, "record", value.where());
  ValueRef ref = resolve(graph, value, "record");
  const TensorType& type = graph.type(ref);
  if (!is_float(type.dtype) || !is_single(type)) {
    throw Error("record", value.where(), "\"" + name + "\" is " + to_string(type) + ", not one float",
                "record a float scalar, such as a mean()");
  }
  if (options.capacity < 0 || options.capacity > kMaxRecordCapacity) {
    throw Error("record", value.where(),
                "\"" + name + "\" with a capacity of " + std::to_string(options.capacity) + " values",
                "give a number from 1 to 2^30, or 0 for the default");
  }
  auto capacity = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(options.capacity)));
  graph.records.push_back({std::move(name), ref, value.where(), options.capacity > 0 ? capacity : 0});
}

void Graph::output(std::string name, Arg value) {
  GraphData& graph = data_of(*this, value.where());
  check_name(graph.outputs, name, "output", value.where());
  ValueRef ref = resolve(graph, value, "output");
  graph.outputs.push_back({std::move(name), ref, value.where()});
}

void Graph::assign(const Variable& variable, Arg value) {
  GraphData& graph = data_of(*this, value.where());
  Value assigned;
  if (const auto* number = std::get_if<double>(&value.content())) {
    const TensorType& type = variable.type(value.where());
    assigned = constant(Tensor::full(type.dtype, type.shape, *number, value.where()), value.where());
  } else {
    const auto* source = std::get_if<Variable>(&value.content());
    assigned = source ? Graph(data_).value(*source, value.where()) : std::get<Value>(value.content());
    (void)graph.visible(assigned, "assign", value.where());
  }
  graphsink::assign(variable, Arg(assigned, value.where()));
}

void assign(const Variable& variable, Arg value) {
  const auto* source = std::get_if<Value>(&value.content());
  if (source == nullptr) {
    throw Error("assign", value.where(), "a Variable or a number does not say which graph assigns it",
                "call g.assign(variable, value) of the graph");
  }
  if (!source->valid()) {
    throw Error("assign", value.where(), "the assigned value is not a Value", "assign the result of an op");
  }
  require_valid(variable, "assign", value.where());
  if (source->eager()) {
    throw Error("assign", value.where(), "the Value belongs to an Eager, which has no steps",
                "write what Eager::read() returns with Variable::write()");
  }
  GraphData& graph = *source->graph();
  const ValueRef ref = graph.visible(*source, "assign", value.where());
  if (graph.type(ref) != variable.type()) {
    throw Error(
        "assign", value.where(),
        "\"" + variable.name() + "\" is " + to_string(variable.type()) + ", was given " + to_string(graph.type(ref)),
        "assign a Value of the Variable's type");
  }
  VariableUse& use = graph.use(variable, value.where());
  if (use.committed) {
    throw Error("assign", value.where(),
                "\"" + variable.name() + "\" is already updated by the optimizer at " + to_string(use.committed_where),
                "update it in one place");
  }
  use.assigned = ref;
  use.assigned_where = value.where();
}

}  // namespace graphsink
