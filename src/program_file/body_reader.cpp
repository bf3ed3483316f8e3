// Nodes with bodies.
#include <algorithm>

#include "base/at.h"
#include "ir/control.h"
#include "kernels/runtime/switch_index.h"
#include "program_file/graph_reader.h"

namespace graphsink {
namespace {

// The number that a constant of one i32 has, or none.
std::optional<std::int64_t> constant_number(const GraphData& graph, ValueRef v) {
  const Node& node = graph.nodes[at(v.node)];
  if (node.op != &constant_op || graph.type(v) != TensorType{DType::i32, {}}) return {};
  return node.attrs.as<ConstantAttrs>().tensor->as<std::int32_t>()[0];
}

// Whether the value is the number of iterations that a loop made, of which there are at most `most`.
bool counts_at_most(const GraphData& graph, ValueRef v, std::int64_t most) {
  const Node& node = graph.nodes[at(v.node)];
  if (node.op != &while_op) return false;
  const Region& body = graph.regions[at(node.bodies[0])];
  return body.limit > 0 && body.limit <= most && at(v.output) + 1 == body.parameters.size();
}

// Whether the node is next < limit, or the same with a smaller bound.
bool is_below_limit(const GraphData& graph, const Node& node, const Region& body) {
  if (node.op->elements.scalar != Scalar::less || node.inputs.size() != 2 || node.inputs[0] != body.counter.next)
    return false;
  const std::optional<std::int64_t> bound = constant_number(graph, node.inputs[1]);
  return bound ? *bound <= body.limit : counts_at_most(graph, node.inputs[1], body.limit);
}

// Whether the condition behind an iteration is `next < limit`, as fixed_loop() builds it, and holds at first.
bool runs_to_its_limit(const GraphData& graph, const Node& loop, const Region& body) {
  const Node& first = graph.nodes[at(loop.inputs.back().node)];
  const Node& again = graph.nodes[at(body.results.back().node)];
  return first.op == &constant_op && first.attrs.as<ConstantAttrs>().tensor->at(0) != 0 &&
         is_below_limit(graph, again, body) && constant_number(graph, again.inputs[1]) == body.limit;
}

// Whether the condition behind an iteration is false from the limit on: it, or one of those that it joins with
// logical_and(), says so. These are few, so that no more than these are looked at.
bool stops_at_limit(const GraphData& graph, const Region& body) {
  constexpr std::size_t kMostConditions = 16;
  std::vector<int> conditions{body.results.back().node};
  for (std::size_t i = 0; i < conditions.size() && i < kMostConditions; ++i) {
    const Node& node = graph.nodes[at(conditions[i])];
    if (is_below_limit(graph, node, body)) return true;
    if (node.op->elements.scalar != Scalar::logical_and) continue;
    for (ValueRef v : node.inputs) conditions.push_back(v.node);
  }
  return false;
}

}  // namespace

void GraphReader::read_branch(const JsonField& field, Node node) {
  const JsonField bodies = field.member("bodies");
  const int around = graph_->current_region;
  const bool is_if = node.op == &if_op;
  if (node.inputs.size() != 1)
    field.refuse("expected one operand, which decides, seen " + std::to_string(node.inputs.size()));
  if (bodies.size() == 0 || (is_if && bodies.size() != 2))
    bodies.refuse("expected " + std::string(is_if ? "2" : "1 or more") + ", seen " + std::to_string(bodies.size()));
  if (is_if) {
    expect_predicate(field.member("in")[0], node.inputs[0]);
  } else {
    // This op fails the step unless its operand is the number of a body.
    const Node& index = graph_->nodes[at(node.inputs[0].node)];
    const auto* checked = index.attrs.get_if<SwitchIndexAttrs>();
    if (index.op != &switch_index_op || checked == nullptr ||
        checked->bodies != static_cast<std::int64_t>(bodies.size()))
      field.member("in").refuse("is no number of its " + std::to_string(bodies.size()) + " bodies that was checked");
  }
  const std::vector<ValueRef>* first = nullptr;
  for (std::size_t k = 0; k < bodies.size(); ++k) {
    const int body = bodies[k].index(graph_->regions.size());
    const JsonField from = (*regions_)[at(body)];
    if (region(body).parent != around) bodies[k].refuse("is a region within another one than its node");
    for (const char* of_loop : {"parameters", "counter", "limit", "runs_to_limit", "is_of_segments", "stacked"})
      if (from.find(of_loop)) from.member(of_loop).refuse("belongs to loops, and this is the body of a branch");
    region(body).results = values_of(from, "results", body);
    node.bodies.push_back(body);
    if (first == nullptr) first = &region(body).results;
    if (region(body).results.size() != first->size())
      from.refuse("returns another number of values than the first body");
    for (std::size_t i = 0; i < first->size(); ++i)
      expect_type(from.member("results")[i], region(body).results[i], graph_->type((*first)[i]));
  }
  graph_->set_outputs_like(node, *first);
  graph_->add_node(std::move(node));
}

void GraphReader::read_loop(const JsonField& field, Node node) {
  const JsonField bodies = field.member("bodies");
  if (bodies.size() != 1) bodies.refuse("expected one, seen " + std::to_string(bodies.size()));
  if (node.inputs.empty()) field.refuse("has no operands");
  const int body = bodies[0].index(graph_->regions.size());
  if (region(body).parent != graph_->current_region) bodies[0].refuse("is a region within another one than its node");
  const JsonField from = (*regions_)[at(body)];
  node.bodies = {body};
  region(body).is_loop = true;
  read_body_of_loop(from, node, region(body));
  expect_predicate(field.member("in")[node.inputs.size() - 1], node.inputs.back());
  read_counter(from, node, region(body));
  graph_->set_outputs_like(node, std::span(node.inputs).first(node.inputs.size() - 1));
  const int id = graph_->add_node(std::move(node));
  const std::optional<JsonField> stacked = from.find("stacked");
  for (std::size_t k = 0; stacked && k < stacked->size(); ++k) {
    const JsonField stack = (*stacked)[k];
    stack.expect_members({"value", "place"});
    if (region(body).limit == 0) stack.refuse("is the stack of a loop without a limit");
    const Stacked to{value_of(stack.member("value"), body), value_of(stack.member("place"), body)};
    expect_type(stack.member("place"), to.place, {DType::i32, {}});
    stack.guard([&] { (void)stacked_output(*graph_, id, to); });
  }
}

void GraphReader::read_body_of_loop(const JsonField& field, const Node& node, Region& body) {
  const int number = node.bodies[0];
  const std::size_t states = node.inputs.size() - 1;
  body.parameters = values_of(field, "parameters", number);
  body.results = values_of(field, "results", number);
  if (body.parameters.size() != states)
    field.refuse("expected " + std::to_string(states) + " parameters, seen " + std::to_string(body.parameters.size()));
  if (body.results.size() != states + 1)
    field.refuse("expected " + std::to_string(states + 1) + " results, seen " + std::to_string(body.results.size()));
  std::vector<int> parameters;
  for (std::size_t i = 0; i < states; ++i) {
    const Node& parameter = graph_->nodes[at(body.parameters[i].node)];
    const JsonField place = field.member("parameters")[i];
    if (parameter.op != &parameter_op || parameter.region != number) place.refuse("is no parameter of this body");
    if (parameter.attrs.as<ParameterAttrs>().initial != node.inputs[i])
      place.refuse("begins with another value than operand " + std::to_string(i) + " of the loop");
    expect_type(place, body.parameters[i], graph_->type(node.inputs[i]));
    expect_type(field.member("results")[i], body.results[i], graph_->type(node.inputs[i]));
    parameters.push_back(body.parameters[i].node);
  }
  expect_predicate(field.member("results")[states], body.results.back());
  std::sort(parameters.begin(), parameters.end());
  std::vector<int> all;
  for (int id : body.nodes)
    if (graph_->nodes[at(id)].op == &parameter_op) all.push_back(id);
  if (all != parameters) field.refuse("expected each parameter of the body once in \"parameters\"");
}

void GraphReader::read_counter(const JsonField& field, const Node& node, Region& body) {
  if (const auto limit = field.find("limit")) body.limit = limit->integer(1, std::numeric_limits<std::int32_t>::max());
  if (const auto runs = field.find("runs_to_limit")) body.runs_to_limit = runs->flag();
  if (const auto segments = field.find("is_of_segments")) body.is_of_segments = segments->flag();
  const auto counter = field.find("counter");
  if (!counter) {
    if (body.limit > 0 || body.runs_to_limit) field.refuse("has a limit on its iterations, and does not count them");
    return;
  }
  if (counter->size() != 3) counter->refuse("expected three values, seen " + std::to_string(counter->size()));
  body.counter.first = value_of((*counter)[0], body.parent);
  body.counter.now = value_of((*counter)[1], node.bodies[0]);
  body.counter.next = value_of((*counter)[2], node.bodies[0]);
  const std::size_t last = body.parameters.size();
  if (last == 0 || body.counter.now != body.parameters[last - 1] || body.counter.next != body.results[last - 1])
    counter->refuse("is not the last state of the loop");
  if (body.counter.first != node.inputs[last - 1]) (*counter)[0].refuse("is not what the last state begins with");
  if (constant_number(*graph_, body.counter.first) != 0) (*counter)[0].refuse("is not the number 0");
  const Node& next = graph_->nodes[at(body.counter.next.node)];
  if (next.op->elements.scalar != Scalar::add || next.inputs.size() != 2 || next.inputs[0] != body.counter.now ||
      constant_number(*graph_, next.inputs[1]) != 1)
    (*counter)[2].refuse("is not the number of the iteration and 1");
  if (body.limit > 0 && !stops_at_limit(*graph_, body))
    field.member("limit").refuse("the condition of the loop does not stop it there");
  if (body.runs_to_limit && (body.limit == 0 || !runs_to_its_limit(*graph_, node, body)))
    field.member("runs_to_limit").refuse("the condition of the loop may stop it before");
}

}  // namespace graphsink
