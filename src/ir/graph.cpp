#include "graphsink/graph.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/at.h"
#include "ir/graph_data.h"

namespace graphsink {
namespace {

void check_name(const std::vector<NamedValue>& taken, const std::string& name, const char* call, const Where& where) {
  for (const NamedValue& other : taken) {
    if (other.name == name) {
      throw Error(call, where, "the name \"" + name + "\" was used at " + to_string(other.where),
                  "choose another name");
    }
  }
}

}  // namespace

TensorType Value::type(Where where) const {
  if (!valid()) {
    throw Error("Value", where, "a default-constructed or moved-from Value", "use a Value that an op returned");
  }
  return eager_ ? eager_->type : graph_->type({node_, output_});
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

std::vector<Arg> operands(std::span<const Value> values, const Where& where) {
  std::vector<Arg> args;
  args.reserve(values.size());
  for (const Value& value : values) args.emplace_back(value, where);
  return args;
}

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
// Returns the value that the commit writes to the Variable.
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
    if (graph.nodes[at(ref.node)].region != 0) graph.refuse_inside(ref, call, arg.where());
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
  const std::int64_t elements = type.shape.has_open() ? 0 : type.shape.size();
  if (!is_float(type.dtype) || elements < 1 || elements > kMaxRecordElements) {
    throw Error("record", value.where(),
                "\"" + name + "\" is " + to_string(type) + ", not floats of a fixed number from 1 to " +
                    std::to_string(kMaxRecordElements),
                "record a mean() or another summary, or make it an output(), which keeps the value of the last step");
  }
  const auto capacity = static_cast<std::int64_t>(std::bit_ceil(
      std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(options.capacity, 0)), std::uint64_t{1} << 62)));
  const std::int64_t most = std::bit_floor(static_cast<std::uint64_t>(kMaxRecordCapacity / elements));
  if (options.capacity < 0 || capacity > most) {
    throw Error("record", value.where(),
                "\"" + name + "\" with a capacity of " + std::to_string(options.capacity) + " values",
                "give a number from 1 to " + std::to_string(most) + ", or 0 for the default");
  }
  graph.records.push_back({std::move(name), ref, value.where(), options.capacity > 0 ? capacity : 0});
}

void Graph::stop_when(Arg condition) {
  GraphData& graph = data_of(*this, condition.where());
  ValueRef ref = resolve(graph, condition, "stop_when");
  const TensorType& type = graph.type(ref);
  if (type.dtype != DType::boolean || type.shape.rank() != 0) {
    throw Error("stop_when", condition.where(), "the condition is " + to_string(type) + ", not a boolean scalar",
                "compare with a number, and reduce with any() or all()");
  }
  if (graph.stops.size() == kMaxStops) {
    throw Error("stop_when", condition.where(),
                "the graph has " + std::to_string(kMaxStops) + " conditions to stop already",
                "join some by logical_or()");
  }
  graph.stops.push_back({"", ref, condition.where()});
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
