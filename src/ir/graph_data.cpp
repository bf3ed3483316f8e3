#include "ir/graph_data.h"

#include <algorithm>

#include "base/at.h"

namespace graphsink {
namespace {

// scan() makes a while_, too.
std::string control_name(const Region& body) { return body.op == &while_op ? "loop" : std::string(body.op->name); }

}  // namespace

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
  return "the body of the " + control_name(body) + (place.empty() ? "" : " at " + place);
}

void GraphData::refuse_inside(ValueRef v, std::string_view op, const Where& where) const {
  int region = nodes[at(v.node)].region;
  const Region& body = regions[at(region)];
  const std::string control = control_name(body);
  throw Error(std::string(op), where,
              describe(v) + " is in a body of the " + control + " at " + to_string(body.where) +
                  " and has no value outside of it",
              "return it from the body, or compute it before the " + control);
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
  if (!is_within(current_region, nodes[at(ref.node)].region)) refuse_inside(ref, op, where);
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

void GraphData::note_rank_nodes(std::size_t first) {
  for (std::size_t id = first; id < nodes.size(); ++id) rank_nodes.insert(static_cast<int>(id));
  // A number that is used again behind them becomes a node there, as on a single rank.
  std::erase_if(numbers, [&](const auto& number) { return rank_nodes.contains(number.second.node); });
}

Variable GraphData::make_variable(const std::string& name, const Tensor& initial, const Where& where, Placement on) {
  Variable made(name, initial, on, where);
  if (current_region == 0) return made;
  if (next_made < made_in_bodies.size()) {
    const Variable& known = made_in_bodies[next_made];
    const bool is_alike = known.type() == made.type() && known.placement() == made.placement();
    if (known.name() == made.name() && is_alike) return made_in_bodies[next_made++];
    made_in_bodies.resize(next_made);  // another call than when the body was built before
  }
  ++next_made;
  made_in_bodies.push_back(std::move(made));
  return made_in_bodies.back();
}

Variable GraphData::make_beside(const Variable& parameter, const std::string& name, const Tensor& initial,
                                const Where& where) {
  const Variable made = make_variable(parameter.name() + name, initial, where, parameter.placement());
  made.data()->is_beside_another = true;
  return made;
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

}  // namespace graphsink
