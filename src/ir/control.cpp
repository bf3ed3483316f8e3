#include "ir/control.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/at.h"
#include "ir/draft.h"

namespace graphsink {
namespace {

void infer_nothing(InferArgs&) {}  // types of control nodes are those of their bodies

// Makes the following nodes part of a new body. Behind it, Variables are what they were before, whether the body was
// completed or has thrown.
class BodyScope {
 public:
  // Errors name `name`.
  BodyScope(GraphData& graph, const OpDef& op, std::string_view name, const Where& where)
      : graph_(graph), before_(graph) {
    Region region;
    region.op = &op;
    region.where = where;
    region_ = add_body(graph, std::move(region), name);
    parent_ = std::exchange(graph.current_region, region_);
  }
  ~BodyScope() {
    graph_.current_region = parent_;
    before_.restore(graph_);
  }
  BodyScope(const BodyScope&) = delete;
  BodyScope& operator=(const BodyScope&) = delete;

  int index() const { return region_; }
  Region& region() { return graph_.regions[at(region_)]; }

 private:
  GraphData& graph_;
  AssignedValues before_;
  int region_ = 0;
  int parent_ = 0;
};

// The number of the iteration becomes part of the state, behind the user's.
void add_counter(Node& node, Region& body) {
  node.inputs.insert(node.inputs.end() - 1, body.counter.first);  // before the predicate
  body.parameters.push_back(body.counter.now);
  body.results.push_back(body.counter.next);
}

void check_results(const GraphData& graph, const Node& node) {
  const std::string op(node.op->name);
  const auto& first = graph.regions[at(node.bodies[0])].results;
  for (std::size_t k = 1; k < node.bodies.size(); ++k) {
    const auto& other = graph.regions[at(node.bodies[k])].results;
    if (first.size() != other.size())
      throw Error(op, node.where, "the bodies return different numbers of Values", "return as many from each");
    for (std::size_t i = 0; i < first.size(); ++i) {
      const TensorType &wanted = graph.type(first[i]), &given = graph.type(other[i]);
      if (wanted == given) continue;
      const std::string which = node.op == &if_op ? "the second" : "body " + std::to_string(k);
      throw Error(op, node.where, "the first body returns " + to_string(wanted) + ", " + which + " " + to_string(given),
                  "return the same type from each");
    }
  }
}

// The line of the first body that assigns the Variable.
Where assigned_where(const AssignedValues& before, const std::vector<AssignedValues>& after, int variable) {
  for (const AssignedValues& body : after)
    if (to_string(body.where(variable)) != to_string(before.where(variable))) return body.where(variable);
  return before.where(variable);
}

}  // namespace

const OpDef switch_op{.name = "switch_", .infer = infer_nothing};
const OpDef if_op{.name = "if_", .infer = infer_nothing};
const OpDef while_op{.name = "while_", .infer = infer_nothing};

int add_body(GraphData& graph, Region region, std::string_view op) {
  int depth = 1;
  for (int around = graph.current_region; around > 0; around = graph.regions[at(around)].parent) ++depth;
  if (depth > kMaxNestedBodies)
    throw Error(std::string(op), region.where,
                "its body would be " + std::to_string(depth) + " deep in bodies of loops and branches, and " +
                    std::to_string(kMaxNestedBodies) + " is the most",
                "nest fewer: join conditions with logical_and(), choose with switch_, or give one loop more state");
  region.parent = graph.current_region;
  graph.regions.push_back(std::move(region));
  return static_cast<int>(graph.regions.size()) - 1;
}

void check_state_size(const char* op, std::size_t returned, std::size_t expected, const Where& where) {
  if (returned == expected) return;
  throw Error(op, where,
              "the body returned " + std::to_string(returned) + " Values, the state has " + std::to_string(expected),
              "return one Value for each of the state");
}

ValueRef check_state(const char* op, const GraphData& graph, std::size_t number, const Value& returned,
                     const TensorType& expected, const Where& where) {
  const ValueRef ref = graph.visible(returned, op, where);
  if (graph.type(ref) == expected) return ref;
  throw Error(op, where,
              "state " + std::to_string(number) + " is " + to_string(expected) + ", the body returned " +
                  to_string(graph.type(ref)),
              "return the type the state began with");
}

ValueRef check_predicate(const GraphData& graph, const Value& predicate, const char* op, const Where& where) {
  ValueRef ref = graph.visible(predicate, op, where);
  const TensorType& type = graph.type(ref);
  if (type.dtype != DType::boolean || !is_single(type)) {
    throw Error(op, where, "the predicate is " + to_string(type) + ", not one bool",
                type.dtype == DType::boolean ? "make one of them, with any() or all()"
                                             : "compare: less(a, b), greater(a, b), ...");
  }
  return ref;
}

Value as_value(GraphData& graph, const Arg& arg, const char* op) {
  if (const auto* value = std::get_if<Value>(&arg.content()))
    return graph.value(graph.visible(*value, op, arg.where()));
  if (const auto* variable = std::get_if<Variable>(&arg.content())) {
    return Graph(graph.shared_from_this()).value(*variable, arg.where());
  }
  auto x = std::get<double>(arg.content());
  return Graph(graph.shared_from_this()).constant(Tensor::full(DType::f32, {}, x), arg.where());
}

std::shared_ptr<GraphData> control_graph(std::span<const Arg> args, const char* op, const Where& where) {
  for (const Arg& arg : args) {
    if (const auto* value = std::get_if<Value>(&arg.content()); value && value->valid()) {
      if (value->graph()->run_now) {
        throw Error(op, arg.where(), "Values of an Eager need no control nodes",
                    "use the control flow of your language");
      }
      return value->graph();
    }
  }
  throw Error(op, where, "no operand is a Value of a graph", "make the initial state or the predicate a Value");
}

Values branch_values(GraphData& graph, const OpDef& op, ValueRef decision,
                     const std::vector<std::function<Values()>>& bodies, const Where& where) {
  Node node;
  node.op = &op;
  node.where = where;
  node.inputs = {decision};
  const AssignedValues before(graph);
  std::vector<AssignedValues> after;  // each body
  std::set<int> assigned;             // Variables, by a body
  for (const auto& body : bodies) {
    BodyScope scope(graph, op, op.name, where);
    graph.note_start_of_body();
    for (const Value& value : body()) scope.region().results.push_back(graph.visible(value, op.name, where));
    node.bodies.push_back(scope.index());
    for (int variable : before.changed(graph)) assigned.insert(variable);
    after.emplace_back(graph);
  }
  check_results(graph, node);
  // A branch also returns the Variables that any of its bodies assigned, so that later reads see the new value.
  const std::size_t outputs = graph.regions[at(node.bodies[0])].results.size();
  for (int variable : assigned)
    for (std::size_t k = 0; k < after.size(); ++k)
      graph.regions[at(node.bodies[k])].results.push_back(after[k].value(graph, variable));
  graph.set_outputs_like(node, graph.regions[at(node.bodies[0])].results);
  int id = graph.add_node(std::move(node));
  int result = static_cast<int>(outputs);
  for (int variable : assigned) {
    graph.variables[at(variable)].assigned = {id, result++};
    graph.variables[at(variable)].assigned_where = assigned_where(before, after, variable);
  }
  Values results;
  for (std::size_t i = 0; i < outputs; ++i) results.push_back(graph.value({id, static_cast<int>(i)}));
  return results;
}

ValueRef stacked_output(GraphData& graph, int loop, const Stacked& stacked) {
  Node& node = graph.nodes[at(loop)];
  Region& body = graph.regions[at(node.bodies[0])];
  const auto found = std::find(body.stacked.begin(), body.stacked.end(), stacked);
  const auto number = static_cast<int>(body.parameters.size() + at(static_cast<int>(found - body.stacked.begin())));
  if (found != body.stacked.end()) return {loop, number};
  auto stack_of = [&](const TensorType& type) {
    const Shape value = type.shape.examples();
    Shape shape{body.limit};
    try {
      for (std::int64_t dim : value.dims()) shape.push_back(dim);
      (void)TensorType{type.dtype, shape}.bytes();
    } catch (const Error& e) {
      throw Error(std::string(node.op->name), node.where,
                  "cannot keep " + std::to_string(body.limit) + " times " + to_string(type) +
                      ", one for each iteration: " + e.problem(),
                  "lower the limit on its iterations");
    }
    for (int d = 0; d < type.shape.rank(); ++d)
      if (type.shape.is_open(d)) shape.mark_open(d + 1);
    return TensorType{type.dtype, shape};
  };
  node.outputs.push_back(stack_of(graph.type(stacked.value)));
  for (std::size_t k = 0; k < node.trials.size(); ++k)
    node.trials[k].push_back(stack_of(graph.type_in_trial(stacked.value, k)));
  body.stacked.push_back(stacked);
  return {loop, number};
}

namespace {

// The loop, with the Variables that an iteration assigns as states in front of the user's. If it assigns others, what
// is built is not a loop yet, and they are added to `carried`. `first` is the condition of `init`.
Values build_loop(const char* op, GraphData& graph, const Values& init, ValueRef first,
                  const std::function<Value(const Values&)>& condition,
                  const std::function<Values(const Values&)>& body, std::vector<Variable>& carried,
                  const Where& where) {
  const std::size_t hidden = carried.size();
  auto users = [&](const Values& values) {
    return Values(values.begin() + static_cast<std::ptrdiff_t>(hidden), values.end());
  };
  Node node;
  node.op = &while_op;
  node.where = where;
  Values state;
  for (const Variable& variable : carried) state.push_back(Graph(graph.shared_from_this()).value(variable, where));
  state.insert(state.end(), init.begin(), init.end());
  for (const Value& value : state) node.inputs.push_back({value.node(), value.output()});
  node.inputs.push_back(first);
  std::vector<Where> assigned_where;
  {
    BodyScope scope(graph, while_op, op, where);
    scope.region().is_loop = true;
    Values parameters;
    for (std::size_t i = 0; i < state.size(); ++i) {
      Node parameter;
      parameter.op = &parameter_op;
      parameter.attrs = ParameterAttrs{graph.type(node.inputs[i]), node.inputs[i]};
      graph.set_outputs_like(parameter, {&node.inputs[i], 1});
      parameter.where = where;
      int id = graph.add_node(std::move(parameter));
      scope.region().parameters.push_back({id, 0});
      parameters.push_back(graph.value({id, 0}));
    }
    for (std::size_t i = 0; i < hidden; ++i) graph.use(carried[i], where).assigned = scope.region().parameters[i];
    const AssignedValues begin(graph);
    graph.note_start_of_body();
    Values next = body(users(parameters));
    check_state_size(op, next.size(), init.size(), where);
    std::vector<ValueRef> results;
    for (std::size_t i = 0; i < next.size(); ++i)
      results.push_back(check_state(op, graph, i, next[i], graph.type(node.inputs[hidden + i]), where));
    ValueRef again = check_predicate(graph, condition(next), op, where);
    for (int variable : begin.changed(graph)) {
      const Variable& assigned = graph.variables[at(variable)].variable;
      if (std::find(carried.begin(), carried.end(), assigned) == carried.end()) carried.push_back(assigned);
    }
    for (std::size_t i = 0; i < hidden; ++i) {
      const VariableUse& use = graph.use(carried[i], where);
      scope.region().results.push_back(use.assigned);
      assigned_where.push_back(use.assigned_where);
    }
    if (carried.size() > hidden) return {};
    scope.region().results.insert(scope.region().results.end(), results.begin(), results.end());
    const bool is_counted = scope.region().limit > 0;  // then the counter is a part of `init`
    if (!is_counted && scope.region().counter.now.node >= 0) add_counter(node, scope.region());
    scope.region().results.push_back(again);
    for (const auto& check : std::exchange(scope.region().checks, {})) check(graph);
    node.bodies = {scope.index()};
  }
  graph.set_outputs_like(node, std::span(node.inputs).first(node.inputs.size() - 1));  // without the predicate
  int id = graph.add_node(std::move(node));
  for (std::size_t i = 0; i < hidden; ++i) {
    VariableUse& use = graph.use(carried[i], where);
    use.assigned = {id, static_cast<int>(i)};
    use.assigned_where = assigned_where[i];
  }
  Values results;
  for (std::size_t i = hidden; i < state.size(); ++i) results.push_back(graph.value({id, static_cast<int>(i)}));
  return results;
}

}  // namespace

Values loop_values(const char* op, std::span<const Arg> init, const std::function<Value(const Values&)>& condition,
                   const std::function<Values(const Values&)>& body) {
  const Where where = init.empty() ? Where() : init[0].where();
  std::shared_ptr<GraphData> graph = control_graph(init, op, where);
  Values state;
  for (const Arg& arg : init) state.push_back(as_value(*graph, arg, op));
  // It comes before build_loop() reads the carried Variables, so that the loop begins with what the condition assigns.
  const ValueRef first = check_predicate(*graph, condition(state), op, where);
  std::vector<Variable> carried;
  constexpr int kMostDrafts = 16;  // one is what a loop needs whose functions do the same whenever they are called
  int drafts = 0;
  while (true) {
    Draft draft(*graph);
    const std::size_t known = carried.size();
    Values results = build_loop(op, *graph, state, first, condition, body, carried, where);
    if (carried.size() == known) return results;
    draft.take_back();
    if (++drafts < kMostDrafts) continue;
    throw Error(op, where,
                "the functions of the loop assign other Variables whenever they are called, the last time \"" +
                    carried.back().name() + "\"",
                "make Variables outside of the loop");
  }
}

namespace detail {

Values while_values(std::span<const Arg> init, const std::function<Value(const Values&)>& condition,
                    const std::function<Values(const Values&)>& body) {
  return loop_values("while_", init, condition, body);
}

Values if_values(const Arg& predicate, const std::function<Values()>& then_body,
                 const std::function<Values()>& else_body) {
  std::shared_ptr<GraphData> graph = control_graph(std::span(&predicate, 1), "if_", predicate.where());
  Value condition = as_value(*graph, predicate, "if_");
  return branch_values(*graph, if_op, check_predicate(*graph, condition, "if_", predicate.where()),
                       {then_body, else_body}, predicate.where());
}

}  // namespace detail
}  // namespace graphsink
