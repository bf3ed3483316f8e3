// Kinds of entries that are not ops: sources, Variables, optimizers, control flow, results.
#include <algorithm>
#include <array>

#include "ir/graph_data.h"
#include "site.h"

namespace graphsink::testing {
namespace {

Tensor random_tensor(DType dtype, const Shape& shape, std::uint64_t seed) {
  return Tensor::uniform(shape, seed, -3.0f, 3.0f).to(dtype);
}
Value source(Site& s, bool is_feed) {
  DType dtype = s.dtype();
  Shape shape = s.shape();
  std::string name = (is_feed ? "feed" : "input") + std::to_string(s.entry.id);
  auto d = [&](int i) { return Dim(shape[i]); };
  auto add = [&](std::initializer_list<Dim> dims) {
    return is_feed ? s.building.graph.feed(name, dtype, dims) : s.building.graph.input(name, dtype, dims);
  };
  Value v = shape.rank() == 0   ? add({})
            : shape.rank() == 1 ? add({d(0)})
            : shape.rank() == 2 ? add({d(0), d(1)})
            : shape.rank() == 3 ? add({d(0), d(1), d(2)})
                                : add({d(0), d(1), d(2), d(3)});
  s.building.fed.push_back({v, s.random.next(), is_feed});
  return v;
}

Values variable(Site& s) {
  // Few types, so that Variables can be exchanged, and some of one size and two shapes.
  constexpr std::array kDTypes{f32, f32, f32, f32, f32, f64, i32, bf16};
  DType dtype = kDTypes[static_cast<std::size_t>(s.random.below(kDTypes.size()))];
  const std::array<Shape, 4> shapes{Shape{4, 3}, Shape{12}, Shape{2, 6}, Shape{}};
  const Shape& shape = shapes[static_cast<std::size_t>(s.random.below(10) * 4 / 10)];
  Tensor initial = random_tensor(dtype, shape, s.random.next() + static_cast<std::uint64_t>(s.entry.id));
  Building::State state{Variable("v" + std::to_string(s.entry.id), initial), initial, {}};
  state.at_start = s.building.graph.value(state.variable);
  state.bits = s.random.next();
  s.building.state_of[s.entry.id] = static_cast<int>(s.building.states.size());
  s.building.states.push_back(state);
  return {state.at_start};
}

// --- state

// The Variable's value now: what was assigned, if anything was.
Value read_now(Site& s, Building::State& state) {
  if (state.is_committed) return state.at_start;
  s.building.counts["variable: read after assign"] += state.is_assigned;
  return s.building.graph.value(state.variable);
}
Values read(Site& s) {
  Building::State* state = s.state(0);
  return {state ? read_now(s, *state) : s.any(0)};
}

bool is_variable(const Building& building, const Value& v) {
  return std::any_of(building.states.begin(), building.states.end(), [&](const Building::State& state) {
    return state.at_start.node() == v.node() && state.at_start.output() == v.output();
  });
}
void assign_to(Site& s, Building::State& state, const Value& value) {
  Value fitting = Site::fit(Site::as(value, state.variable.type().dtype), state.variable.type().shape);
  s.building.counts["variable: assigned a view of another"] +=
      is_variable(s.building, value) && fitting.node() != value.node() && fitting.dtype() == value.dtype();
  assign(state.variable, fitting);
  s.building.counts["variable: assigned in a body"] += s.building.graph.data()->current_region != 0;
  state.is_assigned = true;
}
Values assign(Site& s) {
  Building::State* state = s.state(0);
  if (!state || state->is_committed) return {s.any(1)};
  assign_to(s, *state, s.any(1));
  return {s.building.graph.value(state->variable)};
}
// Each takes the value of the other.
Values swap(Site& s) {
  Building::State *a = s.state(0), *b = s.state(1);
  if (!a || !b || a == b || a->is_committed || b->is_committed) return {s.any(0)};
  Value of_a = read_now(s, *a), of_b = read_now(s, *b);
  assign_to(s, *a, of_b);
  assign_to(s, *b, of_a);
  s.building.counts["variable: two exchanged"] +=
      a->variable.type() == b->variable.type() && is_variable(s.building, of_a);
  return {of_a};
}

Value without_gradient_problem(Site& s, const Value& x) {
  return s.building.nodes_without_grad.count(x.node()) != 0 ? s.building.graph.constant(Tensor::full(f32, {2}, 0.5))
                                                            : x;
}
// loss = mean((tanh(x w) - y)^2) over all parameters, and the update.
Values optimizer(Site& s) {
  std::vector<Variable> parameters;
  Value loss;
  for (int i = 0; i < 2; ++i) {
    Building::State* state = s.state(i);
    if (!state || state->is_committed || state->is_assigned || !is_float(state->variable.type().dtype)) continue;
    if (!parameters.empty() && parameters[0] == state->variable) continue;
    parameters.push_back(state->variable);
    state->is_committed = true;
    Value w = Site::as(state->at_start, f32);
    Value x = Site::fit(Site::as(without_gradient_problem(s, s.any(2)), f32), w.shape());
    Value y = Site::fit(Site::as(without_gradient_problem(s, s.any(3)), f32), w.shape());
    Value difference = tanh(x * w) - tanh(y);
    Value part = mean(difference * difference);
    loss = loss.valid() ? loss + part : part;
  }
  if (parameters.empty()) return {s.any(2)};
  Optimizer made;
  if (s.random.chance(50)) {
    made = sgd(loss, parameters, {.lr = 0.05, .momentum = s.random.chance(50) ? 0.9 : 0.0});
  } else {
    AdamwOptions options{.lr = 0.01};
    if (s.random.chance(30)) options.gradients.clip_norm = 0.5;
    if (s.random.chance(30)) options.gradients.accumulate = 2;
    made = adamw(loss, parameters, options);
  }
  for (const Variable& variable : made.variables()) {
    Building::State state{variable, variable.read(), {}};
    state.is_committed = true;
    s.building.states.push_back(state);
  }
  return {loss};
}

// The gradient of mean(tanh(a)) for b, where it is a number.
Values gradient(Site& s) {
  const Value wrt = s.any(1);
  if (!is_float(wrt.dtype())) return {wrt};
  const auto& nodes = s.building.graph.data()->nodes;
  const std::size_t first = nodes.size();
  const Value g = grad(mean(tanh(Site::as(without_gradient_problem(s, s.any(0)), f32))), {wrt})[0];
  for (std::size_t i = first; i < nodes.size(); ++i) {
    s.building.counts["gradient: of a loop"] += nodes[i].op == &while_op;
    s.building.counts["gradient: of a branch"] += is_branch(*nodes[i].op);
  }
  const Value made = minimum(maximum(where(equal(g, g), g, 0.0), -8.0), 8.0);
  s.building.nodes_without_grad.insert(made.node());
  return {made};
}

// --- results

Values output(Site& s) {
  std::string name = "out" + std::to_string(s.entry.id);
  s.building.graph.output(name, s.any(0));
  s.building.outputs.push_back(name);
  return {};
}
Values record(Site& s) {
  std::string name = "record" + std::to_string(s.entry.id);
  Value x = s.floating(0);
  s.building.graph.record(name, x.shape().rank() == 0 ? x : mean(x));
  s.building.records.push_back(name);
  return {};
}

// --- control flow

// The values of a body's last entries, `count` of them, made to fit; `otherwise` where the body is too short.
Value last_of(Site& s, const std::vector<Entry>& body, std::size_t from_end, const Value& otherwise) {
  Value v = otherwise;
  if (from_end < body.size()) v = s.building.value({body[body.size() - 1 - from_end].id, 0});
  return Site::fit(Site::as(v, otherwise.dtype()), otherwise.shape());
}

const std::vector<Entry>& body_of(const Site& s, std::size_t i) {
  static const std::vector<Entry> kNone;
  return i < s.entry.bodies.size() ? s.entry.bodies[i] : kNone;
}

// Runs `inside` such that what it makes cannot be picked later.
template <class F>
auto in_body(Site& s, const F& inside) {
  auto saved = s.building.visible;
  auto result = inside();
  s.building.visible = std::move(saved);
  return result;
}

Value predicate(Site& s) {
  Value x = Site::as(s.any(1), f32);
  bool by_step = s.random.chance(40);
  double bound = s.random.below(3) - 1.0;
  return by_step ? sin(cast(s.building.graph.step(), f32) * 2.0) > 0.0 : sum(x) > bound;
}

Value result_of_body(Site& s, std::size_t i, const Value& like) {
  return in_body(s, [&] {
    s.building.make(body_of(s, i));
    Value result = last_of(s, body_of(s, i), 0, like);
    return s.random.chance(80) ? s.tame(result) : result;
  });
}

Values branch(Site& s) {
  Value like = s.number(0);
  return {if_(
      predicate(s), [&] { return result_of_body(s, 0, like); }, [&] { return result_of_body(s, 1, like); })};
}

Values choice(Site& s) {
  Value like = s.number(0);
  Value index = cast(predicate(s), i32) + cast(predicate(s), i32);
  std::vector<std::function<Value()>> bodies;
  for (std::size_t i = 0; i < 3; ++i) bodies.emplace_back([&s, i, like] { return result_of_body(s, i, like); });
  return {switch_(index, bodies)};
}

Values loop(Site& s) {
  Value x = s.number(0);
  Value y = Site::fit(Site::as(s.any(1), x.dtype()), x.shape());
  Value zero = s.building.graph.constant(Tensor::scalar(std::int32_t{0}));
  int bound = s.random.below(4), turn = s.random.below(4);
  bool asks_state = s.random.chance(60), has_limit = s.random.chance(70);
  s.building.counts["loop: without an iteration"] += bound == 0;
  auto [a, b, n] = while_(
      {x, y, zero},
      [&](const Value& u, const Value&, const Value& i) {
        Value more = i < bound;
        return asks_state ? logical_and(more, less(sum(Site::as(u, f32)), 20.0)) : more;
      },
      [&](const Value& u, const Value& v, const Value& i) {
        return in_body(s, [&] {
          s.building.visible[s.entry.id] = {u, v, i};
          s.building.make(body_of(s, 0));
          Value r = s.tame(last_of(s, body_of(s, 0), 0, u));
          Value q = last_of(s, body_of(s, 0), 1, v);
          if (turn == 0) return std::array{r, u, i + 1};
          if (turn == 1) return std::array{v, u, i + 1};
          if (turn == 2) return std::array{v, r, i + 1};
          return std::array{r, q, i + 1};
        });
      },
      {.max_iterations = has_limit ? bound + 1 : 0});
  if (!has_limit) s.building.nodes_without_grad.insert(a.node());
  return {a, b, n};
}

Values scanned(Site& s) {
  Value x = s.number(0), rows = Site::with_axes(s.number(1));
  if (rows.shape()[0] > 4) rows = slice(rows, {0}, {4});
  Scan made = scan({x}, {rows}, [&](const Values& state, const Values& row) {
    return in_body(s, [&] {
      s.building.visible[s.entry.id] = {state[0], row[0]};
      s.building.make(body_of(s, 0));
      return Scan{{s.tame(last_of(s, body_of(s, 0), 0, state[0]))}, {last_of(s, body_of(s, 0), 1, row[0])}};
    });
  });
  return {made.state[0], made.outputs[0]};
}

const Kind kKinds[] = {
    {"input", Family::source, 0, 0, [](Site& s) { return Values{source(s, false)}; }},
    {"feed", Family::source, 0, 0, [](Site& s) { return Values{source(s, true)}; }},
    {"constant", Family::source, 0, 0,
     [](Site& s) {
       DType dtype = s.dtype();
       Shape shape = s.shape();
       return Values{s.building.graph.constant(random_tensor(dtype, shape, s.random.next()))};
     }},
    {"step", Family::source, 0, 0, [](Site& s) { return Values{s.building.graph.step()}; }},
    {"variable", Family::source, 0, 0, variable},
    {"read", Family::state, 1, 0, read},
    {"assign", Family::state, 2, 0, assign},
    {"swap", Family::state, 2, 0, swap},
    {"optimizer", Family::optimizer, 4, 0, optimizer},
    {"gradient", Family::optimizer, 2, 0, gradient},
    {"if_", Family::control, 2, 0, branch},
    {"switch_", Family::control, 2, 0, choice},
    {"while_", Family::control, 2, 0, loop},
    {"scan", Family::control, 2, 0, scanned},
    {"output", Family::result, 1, 0, output},
    {"record", Family::result, 1, 0, record},
};

}  // namespace

std::span<const Kind> state_kinds() { return kKinds; }

}  // namespace graphsink::testing
