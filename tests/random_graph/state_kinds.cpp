// Kinds of entries that are not ops: sources, Variables, optimizers, control flow, results.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "base/at.h"
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
  if (s.entry.wide != 0) initial = Tensor::uniform({}, s.entry.wide, -0.125f, 0.25f);  // a rate
  Building::State state{Variable("v" + std::to_string(s.entry.id), initial), initial, {}};
  state.at_start = s.building.graph.value(state.variable);
  state.bits = s.random.next();
  s.building.state_of[s.entry.id] = static_cast<int>(s.building.states.size());
  s.building.states.push_back(state);
  return {state.at_start};
}

// --- state

// The Variable's value now: what was assigned, if anything was.
Value read_now(Site& s, int number) {
  const Building::State& state = s.building.states[at(number)];
  if (state.is_committed) return state.at_start;
  s.building.counts["variable: read after assign"] += state.is_assigned;
  return s.building.calls->value(number);
}
Values read(Site& s) { return {s.state(0) ? read_now(s, s.state_number(0)) : s.any(0)}; }

bool is_variable(const Building& building, const Value& v) {
  return std::any_of(building.states.begin(), building.states.end(), [&](const Building::State& state) {
    return state.at_start.node() == v.node() && state.at_start.output() == v.output();
  });
}
void assign_to(Site& s, int number, const Value& value) {
  Building::State& state = s.building.states[at(number)];
  Value fitting = Site::fit(Site::as(value, state.variable.type().dtype), state.variable.type().shape);
  s.building.counts["variable: assigned a view of another"] +=
      is_variable(s.building, value) && fitting.node() != value.node() && fitting.dtype() == value.dtype();
  s.building.calls->assign(number, fitting);
  s.building.counts["variable: assigned in a body"] += s.building.graph.data()->current_region != 0;
  state.is_assigned = true;
}
Values assign(Site& s) {
  Building::State* state = s.state(0);
  if (!state || state->is_committed) return {s.any(1)};
  assign_to(s, s.state_number(0), s.any(1));
  return {s.building.calls->value(s.state_number(0))};
}
// Each takes the value of the other.
Values swap(Site& s) {
  Building::State *a = s.state(0), *b = s.state(1);
  if (!a || !b || a == b || a->is_committed || b->is_committed) return {s.any(0)};
  const Value of_a = read_now(s, s.state_number(0));
  const Value of_b = read_now(s, s.state_number(1));
  assign_to(s, s.state_number(0), of_b);
  assign_to(s, s.state_number(1), of_a);
  s.building.counts["variable: two exchanged"] +=
      a->variable.type() == b->variable.type() && is_variable(s.building, of_a);
  return {of_a};
}

Value without_gradient_problem(Site& s, const Value& x) {
  const bool has_none = s.building.calls->decide(s.building.nodes_without_grad.count(x.node()) != 0);
  return has_none ? s.building.graph.constant(Tensor::full(f32, {2}, 0.5)) : x;
}
// A learning rate: a number, a Variable, or a Value, which may be the memory of a Variable.
Rate rate(Site& s, int pick, double number) {
  const int state_number = s.state_number(pick);
  if (s.entry.wide == 0 || state_number < 0) return {number};
  Building::State& state = s.building.states[at(state_number)];
  const TensorType& type = state.variable.type();
  if (type.shape.rank() != 0 || (type.dtype != f32 && type.dtype != f64)) return {number};
  ++s.building.counts["optimizer: a rate of the recipe"];
  switch (s.wide.below(5)) {
    case 0:
      return {0, reshape(state.at_start, {1})};
    case 1:
      return {0, state.at_start * 0.5};
    case 2:
      return s.building.calls->decide(state.is_committed) ? Rate{0, state.at_start} : Rate{0, {}, state_number};
    case 3:
      return {0, abs(sin(cast(s.building.graph.step(), f32))) * 0.05};
    default:
      return {0, state.at_start};
  }
}

// loss = mean((tanh(x w) - y)^2) over all parameters, and the update.
Values optimizer(Site& s) {
  Update update;
  std::vector<int> parameters;
  for (int i = 0; i < 2; ++i) {
    const int number = s.state_number(i);
    Building::State* state = s.state(i);
    const bool fits = state && !state->is_committed && !state->is_assigned && is_float(state->variable.type().dtype) &&
                      (parameters.empty() || parameters[0] != number);
    if (!s.building.calls->decide(fits)) continue;
    parameters.push_back(number);
    state->is_committed = true;
    Value w = Site::as(state->at_start, f32);
    Value x = Site::fit(Site::as(without_gradient_problem(s, s.any(2)), f32), w.shape());
    Value y = Site::fit(Site::as(without_gradient_problem(s, s.any(3)), f32), w.shape());
    Value product = tanh(x * w);
    Value difference = product - tanh(y);
    Value part = mean(difference * difference);
    update.loss = update.loss.valid() ? update.loss + part : part;
  }
  if (parameters.empty()) return {s.any(2)};
  update.groups = {{parameters}};
  if (s.random.chance(50)) {
    update.lr.number = 0.05;
    update.momentum = s.random.chance(50) ? 0.9 : 0.0;
  } else {
    update.is_adamw = true;
    update.lr.number = 0.01;
    update.weight_decay = 0.01;
    if (s.random.chance(30)) update.clip_norm = 0.5;
    if (s.random.chance(30)) update.accumulate = 2;
  }
  if (s.entry.wide != 0) {
    update.lr = rate(s, 4, update.lr.number);
    if (s.wide.chance(20)) update.weight_decay = 0.125;
    update.nesterov = update.momentum > 0 && s.wide.chance(50);
    if (parameters.size() == 2 && s.wide.chance(50)) {
      update.groups = {{{parameters[0]}, {}, 0.25}, {{parameters[1]}, rate(s, 5, 0.02)}};
      ++s.building.counts["optimizer: of two groups"];
    }
  }
  s.call([&](Calls& calls) { return calls.update(update), 0; });
  return {update.loss};
}

// variable -= rate * other, by an op of the user's.
Values commit(Site& s) {
  Building::State* state = s.state(0);
  auto fits = [&] {
    const DType dtype = state->variable.type().dtype;
    return !state->is_committed && !state->is_assigned && (dtype == f32 || dtype == f64);
  };
  if (!s.building.calls->decide(state && fits())) return {s.any(1)};
  Rate given = rate(s, 1, 0);
  Value factor = given.state >= 0 ? s.building.states[at(given.state)].at_start : given.value;
  if (!factor.valid()) factor = s.building.graph.constant(Tensor::scalar(0.25f));
  const Building::State* other = s.state(2);
  const Value x = other ? other->at_start : s.any(2);
  const TensorType type = state->variable.type();
  const Value fitting = Site::fit(Site::as(x, type.dtype), type.shape);
  s.building.counts["commit: reads another Variable"] += is_variable(s.building, x);
  state->is_committed = true;
  s.building.calls->commit(s.state_number(0), factor, fitting);
  return {fitting};
}

// The gradient of mean(tanh(a)) for b, where it is a number.
Values gradient(Site& s) {
  const Value wrt = s.any(1);
  if (!is_float(wrt.dtype())) return {wrt};
  const auto& nodes = s.building.graph.data()->nodes;
  const std::size_t first = nodes.size();
  const Value loss = mean(tanh(Site::as(without_gradient_problem(s, s.any(0)), f32)));
  const Value g = s.call([&](Calls& calls) { return calls.grad(loss, wrt); });
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
  s.building.calls->output(name, s.any(0));
  return {};
}
Values record(Site& s) {
  std::string name = "record" + std::to_string(s.entry.id);
  Value x = s.floating(0);
  s.building.calls->record(name, x.shape().rank() == 0 ? x : mean(x));
  const bool has_several = !x.shape().has_open() && x.shape().size() > 1;
  if (has_several && s.random.chance(60))
    s.building.vectors.emplace_back(kVectorRecord + std::to_string(s.entry.id), x);
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

// Runs `inside`, the `number`th body of the entry, such that what it makes cannot be picked later, and what it draws
// does not depend on which bodies ran before, and how often.
template <class F>
auto in_body(Site& s, int number, const F& inside) {
  auto saved = s.building.visible;
  const Random random = s.random;
  for (int i = 0; i < number; ++i) s.random.next();
  ++s.building.depth;
  auto result = inside();
  --s.building.depth;
  s.random = random;
  s.building.visible = std::move(saved);
  return result;
}

Value predicate(Site& s) {
  Value x = Site::as(s.any(1), f32);
  bool by_step = s.random.chance(40);
  double bound = s.random.below(3) - 1.0;
  return by_step ? sin(cast(s.building.graph.step(), f32) * 2.0) > 0.0 : sum(x) > bound;
}

Values result_of_body(Site& s, std::size_t i, const Value& like) {
  return in_body(s, static_cast<int>(i), [&] {
    s.building.make(body_of(s, i));
    Value result = last_of(s, body_of(s, i), 0, like);
    return Values{s.random.chance(80) ? s.tame(result) : result};
  });
}

Values branch(Site& s) {
  Value like = s.number(0);
  const Value decision = predicate(s);
  return {s.call([&](Calls& calls) {
    return calls.if_(
        decision, [&] { return result_of_body(s, 0, like); }, [&] { return result_of_body(s, 1, like); });
  })};
}

Values choice(Site& s) {
  Value like = s.number(0);
  const Value first = cast(predicate(s), i32);
  const Value second = cast(predicate(s), i32);
  Value index = first + second;
  bool fails = false;
  if (s.entry.wide != 0) {
    index = cast(index, std::array{i32, i64, u8}[at(s.wide.below(3))]);
    fails = s.building.depth == 0 && s.wide.chance(25);
    if (fails) {  // from some step on it is the number of no body
      const Tensor outside =
          index.dtype() == i64 ? Tensor::scalar(std::int64_t{1} << 32) : Tensor::full(index.dtype(), {}, 17);
      const Value is_late = s.building.graph.step() >= 1 + s.wide.below(2);
      index = where(is_late, s.building.graph.constant(outside), index);
      ++s.building.counts[kNoBody];
    }
  }
  ++s.building.counts["switch_: by " + std::string(to_string(index.dtype()))];
  std::vector<Calls::Body> bodies;
  for (std::size_t i = 0; i < 3; ++i) bodies.emplace_back([&s, i, like] { return result_of_body(s, i, like); });
  const Value made = s.call([&](Calls& calls) { return calls.switch_(index, bodies); });
  // What nothing uses does not run, and does not fail.
  if (fails) s.building.calls->output("chosen" + std::to_string(s.entry.id), made);
  return {made};
}

// A number that is counted until the loop ends: down to 0 through the denormal numbers, up to infinity, or up to the
// largest integers.
struct Counting {
  Value first;
  std::function<Value(const Value&)> next, goes_on;
  const char* name;
};
Counting counting(Site& s) {
  Graph& graph = s.building.graph;
  switch (s.wide.below(4)) {
    case 0:
    case 1: {
      const double factor = std::array{0.5, 0.0625, 0x1p-9}[at(s.wide.below(3))];
      const Value zero = graph.constant(Tensor::scalar(0.0f));
      return {graph.constant(Tensor::scalar(s.wide.chance(50) ? 1.5e-38f : 3e-38f)),
              [=](const Value& c) { return c * factor; }, [=](const Value& c) { return c > zero; },
              "loop: denormal counter"};
    }
    case 2: {
      const Value infinite = graph.constant(Tensor::scalar(std::numeric_limits<float>::infinity()));
      return {graph.constant(Tensor::scalar(1e33f)), [=](const Value& c) { return c * 100.0; },
              [=](const Value& c) { return c < infinite; }, "loop: infinite counter"};
    }
    default: {
      const Value last = graph.constant(Tensor::scalar(std::int64_t{9'223'372'036'854'775'807}));
      const Value step = graph.constant(Tensor::scalar(std::int64_t{1'152'921'504'606'846'975}));
      return {graph.constant(Tensor::scalar(std::int64_t{4'611'686'018'427'387'907})),
              [=](const Value& c) { return c + step; }, [=](const Value& c) { return last - c >= step; },
              "loop: huge counter"};
    }
  }
}

// What a condition asks beside the counter: of what its entries make, or of a random number.
Value more_of_condition(Site& s, const Value& u, const Value& more, bool draws) {
  return in_body(s, 1, [&] {
    Value result = more;
    s.building.visible[s.entry.id] = {u};
    if (s.entry.bodies.size() > 1) {
      s.building.make(s.entry.bodies[1]);
      const Value last = last_of(s, s.entry.bodies[1], 0, s.building.graph.constant(Tensor::scalar(0.5f)));
      result = logical_and(result, less(last, 2.0));
    }
    if (draws) {
      const Value drawn = random_uniform(s.building.graph, f32, {}, 0, 1);
      result = logical_and(result, drawn < 0.75);
    }
    return result;
  });
}

Values loop(Site& s) {
  Value x = s.number(0);
  Value y = Site::fit(Site::as(s.any(1), x.dtype()), x.shape());
  Value zero = s.building.graph.constant(Tensor::scalar(std::int32_t{0}));
  int bound = s.random.below(4), turn = s.random.below(4);
  bool asks_state = s.random.chance(60), has_limit = s.random.chance(70);
  s.building.counts["loop: without an iteration"] += bound == 0;
  Values init{x, y, zero};
  std::int64_t limit = has_limit ? bound + 1 : 0;
  bool draws = false;
  Value most;  // iterations
  std::optional<Counting> counter;
  if (s.entry.wide != 0) {
    draws = s.wide.chance(30);
    if (has_limit) limit = std::max(bound, 1) + s.wide.below(3);
    if (has_limit && s.wide.chance(15)) {  // from some step on there are more iterations than the limit
      most = cast(s.building.graph.step() >= 1 + s.wide.below(2), i32) * 9 + bound;
      ++s.building.counts[kOverLimit];
    }
    if (s.wide.chance(40)) {
      counter = counting(s);
      draws = draws && s.wide.chance(30);
      ++s.building.counts[counter->name];
      init.push_back(counter->first);
      if (has_limit) limit = 34 + s.wide.below(6);  // more than halvings from a normal number to 0
    }
    s.building.counts["loop: as many iterations as its limit"] += has_limit && limit == bound;
    s.building.counts["loop: draws in its condition"] += draws;
    s.building.counts["loop: entries in its condition"] += s.entry.bodies.size() > 1;
  }
  auto condition = [&](const Values& now) {
    Value more = counter ? counter->goes_on(now[3]) : most.valid() ? now[2] < most : now[2] < bound;
    if (asks_state && !counter) more = logical_and(more, less(sum(Site::as(now[0], f32)), 20.0));
    return s.entry.wide != 0 ? more_of_condition(s, now[0], more, draws) : more;
  };
  auto body = [&](const Values& now) {
    return in_body(s, 0, [&] {
      const Value &u = now[0], &v = now[1], &i = now[2];
      s.building.visible[s.entry.id] = {u, v, i};
      s.building.make(body_of(s, 0));
      Value r = s.tame(last_of(s, body_of(s, 0), 0, u));
      Value q = last_of(s, body_of(s, 0), 1, v);
      Values next = turn == 0   ? Values{r, u, i + 1}
                    : turn == 1 ? Values{v, u, i + 1}
                    : turn == 2 ? Values{v, r, i + 1}
                                : Values{r, q, i + 1};
      if (counter) next.push_back(counter->next(now[3]));
      return next;
    });
  };
  Values made = s.call([&](Calls& calls) { return calls.while_(init, condition, body, {.max_iterations = limit}); });
  if (!has_limit) s.building.nodes_without_grad.insert(made[0].node());
  made.resize(3);
  return made;
}

Values scanned(Site& s) {
  Value x = s.number(0), rows = Site::with_axes(s.number(1));
  if (rows.shape()[0] > 4) rows = slice(rows, {0}, {4});
  auto body = [&](const Values& state, const Values& row) {
    return in_body(s, 0, [&] {
      s.building.visible[s.entry.id] = {state[0], row[0]};
      s.building.make(body_of(s, 0));
      const Value next = s.tame(last_of(s, body_of(s, 0), 0, state[0]));
      return Scan{{next}, {last_of(s, body_of(s, 0), 1, row[0])}};
    });
  };
  Scan made = s.call([&](Calls& calls) { return calls.scan({x}, {rows}, body); });
  return {made.state[0], made.outputs[0]};
}

const Kind kStateKinds[] = {
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
    {"commit", Family::optimizer, 3, 0, commit},
    {"gradient", Family::optimizer, 2, 0, gradient},
    {"if_", Family::control, 2, 0, branch},
    {"switch_", Family::control, 2, 0, choice},
    {"while_", Family::control, 2, 0, loop},
    {"scan", Family::control, 2, 0, scanned},
    {"output", Family::result, 1, 0, output},
    {"record", Family::result, 1, 0, record},
};

}  // namespace

std::span<const Kind> state_kinds() { return kStateKinds; }

}  // namespace graphsink::testing
