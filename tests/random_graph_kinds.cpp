// The kinds of entries that a random graph is made of.
#include <algorithm>
#include <array>
#include <climits>
#include <cmath>

#include "random_graph.h"

namespace graphsink::testing {
namespace {

// --- ops with a CPU body only

void infer_mix(InferArgs& a) {
  a.expect_inputs(2);
  a.expect_same_dtype(2);
  a.out(a.in(0).dtype, a.in(0).shape);
}
void mix_body(const CpuArgs& a) {
  for (std::int64_t i = 0; i < a.out_type(0).shape.size(); ++i)
    a.out<float>(0)[i] = 0.5f * a.in<float>(0)[i] - 0.25f * a.in<float>(1)[i];
}
const OpDef cpu_mix{.name = "cpu_mix", .infer = infer_mix, .cpu = mix_body};

void infer_pair(InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.in(0).dtype, a.in(0).shape);
  a.out(i32, a.in(0).shape);
}
void pair_body(const CpuArgs& a) {
  for (std::int64_t i = 0; i < a.out_type(0).shape.size(); ++i) {
    float x = a.in<float>(0)[i];
    a.out<float>(0)[i] = 1.0f - 0.5f * x;
    a.out<std::int32_t>(1)[i] = static_cast<std::int32_t>(x * 3.0f);
  }
}
const OpDef cpu_pair{.name = "cpu_pair", .infer = infer_pair, .cpu = pair_body};

struct EffectAttrs {
  std::shared_ptr<EffectLog> log;
  int id;
};
void infer_effect(InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.in(0).dtype, a.in(0).shape);
}
void effect_body(const CpuArgs& a) {
  const auto* bytes = a.in<unsigned char>(0);
  std::size_t count = a.in_type(0).bytes();
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (std::size_t i = 0; i < count; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  std::copy(bytes, bytes + count, a.out<unsigned char>(0));
  const auto& attrs = a.attrs<EffectAttrs>();
  std::lock_guard lock(attrs.log->mutex);
  attrs.log->entries.push_back({attrs.id, hash});
}
const OpDef cpu_effect{.name = "cpu_effect", .infer = infer_effect, .purity = Purity::host_effect, .cpu = effect_body};

// --- parts of makers

template <Value (*op)(Arg, Label)>
Values unary(Site& s) {
  return {op(s.floating(0), s.label)};
}
template <Value (*op)(Arg, Arg, Label)>
Values binary(Site& s) {
  Value a = s.number(0);
  return {s.tame(op(a, s.beside(1, a), s.label))};
}
template <Value (*op)(Arg, Arg, Label)>
Values compare(Site& s) {
  Value a = s.number(0);
  return {op(a, s.beside(1, a), s.label)};
}
template <Value (*op)(Arg, Arg, Label)>
Values logical(Site& s) {
  Value a = Site::as(s.any(0), boolean);
  return {op(a, s.beside(1, a), s.label)};
}

// None, one or two axes.
std::vector<int> axes(Site& s, const Value& x) {
  std::vector<int> result;
  for (int d = 0; d < x.shape().rank() && result.size() < 2; ++d)
    if (s.random.chance(40)) result.push_back(s.random.chance(50) ? d : d - x.shape().rank());
  return result;
}
template <Value (*op)(Arg, std::vector<int>, bool, Label)>
Values reduce(Site& s) {
  Value x = s.number(0);
  if (op == mean) x = s.floating(0);
  std::vector<int> over = axes(s, x);
  return {s.tame(op(x, over, s.random.chance(50), s.label))};
}
// At least one axis.
Value with_axes(const Value& x) { return x.shape().rank() == 0 ? reshape(x, {1}) : x; }

Tensor random_tensor(DType dtype, const Shape& shape, std::uint64_t seed) {
  return Tensor::uniform(shape, seed, -3.0f, 3.0f).to(dtype);
}
DType random_dtype(Site& s) {
  constexpr std::array kDTypes{f32, f32, f32, f32, f64, i32, f16, bf16, i64, u8, boolean};
  return kDTypes[static_cast<std::size_t>(s.random.below(kDTypes.size()))];
}

Value source(Site& s, bool is_feed) {
  DType dtype = random_dtype(s);
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
  Tensor initial = random_tensor(dtype, shape, s.random.next());
  Building::State state{Variable("v" + std::to_string(s.entry.id), initial), initial, {}};
  state.at_start = s.building.graph.value(state.variable);
  s.building.state_of[s.entry.id] = static_cast<int>(s.building.states.size());
  s.building.states.push_back(state);
  return {state.at_start};
}

// --- state

// The Variable's value now: what was assigned, if anything was.
Value read_now(Site& s, Building::State& state) {
  if (state.is_committed) return state.at_start;
  s.building.counts["read after assign"] += state.is_assigned;
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
  s.building.counts["assigned view of a Variable"] +=
      is_variable(s.building, value) && fitting.node() != value.node() && fitting.dtype() == value.dtype();
  assign(state.variable, fitting);
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
  s.building.counts["swap"] += a->variable.type() == b->variable.type() && is_variable(s.building, of_a);
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

Values branch(Site& s) {
  Value like = s.number(0);
  Value x = Site::as(s.any(1), f32);
  bool by_step = s.random.chance(40);
  double bound = s.random.below(3) - 1.0;
  Value predicate = by_step ? sin(cast(s.building.graph.step(), f32) * 2.0) > 0.0 : sum(x) > bound;
  auto made = [&](std::size_t i) {
    return in_body(s, [&] {
      s.building.make(body_of(s, i));
      Value result = last_of(s, body_of(s, i), 0, like);
      return s.random.chance(80) ? s.tame(result) : result;
    });
  };
  Value result = if_(
      predicate, [&] { return made(0); }, [&] { return made(1); });
  s.building.nodes_without_grad.insert(result.node());
  return {result};
}

Values loop(Site& s) {
  Value x = s.number(0);
  Value y = Site::fit(Site::as(s.any(1), x.dtype()), x.shape());
  Value zero = s.building.graph.constant(Tensor::scalar(std::int32_t{0}));
  int bound = s.random.below(4), turn = s.random.below(4);
  bool asks_state = s.random.chance(30);
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
      });
  s.building.nodes_without_grad.insert(a.node());
  return {a, b, n};
}

Values cpu_effect_of(Site& s) {
  ++s.building.counts["host effect"];
  return emit(cpu_effect, {s.any(0)}, EffectAttrs{s.building.effects, s.entry.id});
}

// --- products, windows

Values product(Site& s) {
  Value a = s.matrices(0);
  std::int64_t k = a.shape()[-1], n = 1 + s.random.below(4);
  MatmulOptions options;
  if (s.random.chance(30)) {
    options.transpose_a = true;
    k = a.shape()[-2];
  }
  options.transpose_b = s.random.chance(30);
  if (is_half(a.dtype()) && s.random.chance(30)) options.out = f32;
  Shape shape;
  if (s.random.chance(50))
    for (int d = 0; d + 2 < a.shape().rank(); ++d) shape.push_back(s.random.chance(70) ? a.shape()[d] : 1);
  shape.push_back(options.transpose_b ? n : k);
  shape.push_back(options.transpose_b ? k : n);
  Value product = matmul(a, Site::fit(Site::as(s.any(1), a.dtype()), shape), options, s.label);
  if (s.random.chance(40)) product = add(product, s.vector(2, product.dtype(), n), s.label);
  return {s.random.chance(50) ? relu(s.tame(product), s.label) : s.tame(product)};
}

Values convolution(Site& s) {
  Value x = s.real(0);
  bool grouped = s.random.chance(30);
  x = Site::fit(x, {1 + s.random.below(2), 2, 4, 3});
  Value w = Site::fit(Site::as(s.any(1), x.dtype()), {2, grouped ? 1 : 2, 2, 2});
  Conv2dOptions options;
  options.padding = {s.random.below(2), s.random.below(2)};
  options.stride = {1 + s.random.below(2), 1};
  options.groups = grouped ? 2 : 1;
  return {s.tame(conv2d(x, w, options, s.label))};
}
Value image(Site& s) {
  Value x = s.real(0);
  return x.shape().rank() < 2 || x.shape()[-1] < 2 || x.shape()[-2] < 2 ? Site::fit(x, {2, 3, 4}) : x;
}

Values attend(Site& s) {
  DType dtype = s.real(0).dtype();
  Value q = Site::fit(s.real(0), {1, 2, 3, 4});
  Value k = Site::fit(Site::as(s.any(1), dtype), {1, 2, 4, 4});
  Value v = Site::fit(Site::as(s.any(2), dtype), {1, 2, 4, 4});
  return {attention(q, k, v, {.causal = s.random.chance(50)}, s.label)};
}

// --- movement

Values slices(Site& s) {
  Value x = with_axes(s.any(0));
  std::vector<std::int64_t> begins, ends, steps;
  for (int d = 0; d < x.shape().rank(); ++d) {
    std::int64_t n = x.shape()[d];
    bool is_back = s.random.chance(25);
    begins.push_back(is_back ? n - 1 : s.random.below(static_cast<int>((n + 1) / 2)));
    ends.push_back(is_back ? INT64_MIN : n);
    steps.push_back((is_back ? -1 : 1) * (1 + s.random.below(2)));
  }
  return {slice(x, begins, ends, steps, s.label)};
}
Values pads(Site& s) {
  Value x = s.any(0);
  std::vector<std::int64_t> before, after;
  for (int d = 0; d < x.shape().rank(); ++d) {
    before.push_back(s.random.below(2));
    after.push_back(s.random.below(2));
  }
  return {pad(x, before, after, 1, s.label)};
}
Values permutes(Site& s) {
  Value x = s.any(0);
  std::vector<int> order;
  for (int d = 0; d < x.shape().rank(); ++d)
    order.insert(order.begin() + s.random.below(static_cast<int>(order.size()) + 1), d);
  return {permute(x, order, s.label)};
}
Values splits(Site& s) {
  Value x = with_axes(s.any(0));
  int d = s.axis(x);
  std::int64_t n = x.shape()[d];
  if (n < 2) return {concat({x, x}, d, s.label)};
  if (n % 2 == 0 && s.random.chance(50)) return split(x, 2, d, s.label);
  return split(x, std::vector<std::int64_t>{1, n - 1}, d, s.label);
}
Values joins(Site& s) {
  Value x = with_axes(s.any(0));
  Value y = Site::fit(Site::as(s.any(1), x.dtype()), x.shape());
  return {s.random.chance(70) ? concat({x, y}, s.axis(x), s.label) : stack({x, y}, s.axis(x), s.label)};
}
Values gathers(Site& s) {
  Value x = with_axes(s.any(0));
  int d = s.axis(x);
  Value at = s.indices(1, x.shape()[d], s.random.chance(50) ? Shape{3} : Shape{2, 2});
  return {gather(x, at, d, s.label)};
}
Values scatters(Site& s) {
  Value x = s.any(0);
  x = with_axes(is_float(x.dtype()) || x.dtype() == i32 ? x : Site::as(x, f32));
  int d = s.axis(x);
  Shape shape = x.shape();
  shape[d] = 3;
  Value updates = Site::fit(Site::as(s.any(2), x.dtype()), shape);
  return {s.tame(scatter_add(x, s.indices(1, x.shape()[d], {3}), updates, d, s.label))};
}
Values embeds(Site& s) {
  Value table = Site::fit(s.floating(0), {4, 3});
  return {embedding(table, s.indices(1, 4, {5}), s.label)};
}
Values reshapes(Site& s) {
  Value x = s.any(0);
  std::int64_t n = x.shape().size();
  int divisor = 1 + s.random.below(4);
  if (n % divisor != 0) return {reshape(x, {-1}, s.label)};
  return {s.random.chance(50) ? reshape(x, {divisor, -1}, s.label) : reshape(x, {n / divisor, 1, divisor}, s.label)};
}

Values top(Site& s) {
  Value x = s.any(0);
  x = with_axes(x.dtype() == boolean ? Site::as(x, i32) : x);
  int d = s.axis(x);
  TopK found = top_k(x, 1 + s.random.below(static_cast<int>(x.shape()[d])), d, s.label);
  return {found.values, found.indices};
}
Values arg(Site& s) {
  Value x = with_axes(s.number(0));
  return {(s.random.chance(50) ? argmax : argmin)(x, s.axis(x), s.random.chance(50), s.label)};
}

// --- the table

constexpr Family kU = Family::unary, kB = Family::binary, kC = Family::choice;

const Kind kKinds[] = {
    {"input", Family::source, 0, 0, [](Site& s) { return Values{source(s, false)}; }},
    {"feed", Family::source, 0, 0, [](Site& s) { return Values{source(s, true)}; }},
    {"constant", Family::source, 0, 0,
     [](Site& s) {
       DType dtype = random_dtype(s);
       Shape shape = s.shape();
       return Values{s.building.graph.constant(random_tensor(dtype, shape, s.random.next()))};
     }},
    {"step", Family::source, 0, 0, [](Site& s) { return Values{s.building.graph.step()}; }},
    {"variable", Family::source, 0, 0, variable},

    {"neg", kU, 1, 3, unary<neg>},
    {"abs", kU, 1, 2, unary<abs>},
    {"exp", kU, 1, 2, [](Site& s) { return Values{s.tame(exp(s.floating(0), s.label))}; }},
    {"log", kU, 1, 2, [](Site& s) { return Values{log(abs(s.floating(0)) + 0.25, s.label)}; }},
    {"sqrt", kU, 1, 2, [](Site& s) { return Values{sqrt(abs(s.floating(0)), s.label)}; }},
    {"rsqrt", kU, 1, 2, [](Site& s) { return Values{rsqrt(abs(s.floating(0)) + 0.5, s.label)}; }},
    {"sin", kU, 1, 3, unary<sin>},
    {"cos", kU, 1, 3, unary<cos>},
    {"tanh", kU, 1, 4, unary<tanh>},
    {"relu", kU, 1, 4, unary<relu>},
    {"sigmoid", kU, 1, 3, unary<sigmoid>},
    {"silu", kU, 1, 3, unary<silu>},
    {"gelu", kU, 1, 3, unary<gelu>},

    {"add", kB, 2, 6, binary<add>},
    {"sub", kB, 2, 4, binary<sub>},
    {"mul", kB, 2, 4, binary<mul>},
    {"div", kB, 2, 2,
     [](Site& s) {
       Value a = s.floating(0);
       return Values{s.tame(div(a, abs(s.beside(1, a)) + 0.5, s.label))};
     }},
    {"minimum", kB, 2, 2, binary<minimum>},
    {"maximum", kB, 2, 2, binary<maximum>},
    {"pow", kB, 2, 1,
     [](Site& s) {
       Value a = s.floating(0);
       return Values{pow(abs(a) * 0.25 + 0.5, tanh(s.beside(1, a)), s.label)};
     }},

    {"less", kC, 2, 1, compare<less>},
    {"less_equal", kC, 2, 1, compare<less_equal>},
    {"greater", kC, 2, 1, compare<greater>},
    {"greater_equal", kC, 2, 1, compare<greater_equal>},
    {"equal", kC, 2, 1, compare<equal>},
    {"not_equal", kC, 2, 1, compare<not_equal>},
    {"logical_and", kC, 2, 1, logical<logical_and>},
    {"logical_or", kC, 2, 1, logical<logical_or>},
    {"logical_xor", kC, 2, 1, logical<logical_xor>},
    {"logical_not", kC, 1, 1, [](Site& s) { return Values{logical_not(Site::as(s.any(0), boolean), s.label)}; }},
    {"where", kC, 3, 4,
     [](Site& s) {
       Value a = s.any(1);
       Value b = s.beside(2, a);
       Value condition = Site::as(s.any(0), boolean);
       return Values{where(Site::fit(condition, a.shape()), a, b, s.label)};
     }},
    {"cast", Family::cast, 1, 5, [](Site& s) { return Values{Site::as(s.any(0), random_dtype(s))}; }},

    {"matmul", Family::product, 3, 7, product},
    {"attention", Family::product, 3, 1, attend},
    {"conv2d", Family::window, 2, 1, convolution},
    {"max_pool2d", Family::window, 1, 1,
     [](Site& s) {
       return Values{max_pool2d(image(s), {2, 2}, {.stride = {1, 1}}, s.label)};
     }},
    {"avg_pool2d", Family::window, 1, 1,
     [](Site& s) {
       return Values{avg_pool2d(image(s), {2, 2}, {.padding = {1, 0}}, s.label)};
     }},

    {"sum", Family::reduction, 1, 3, reduce<sum>},
    {"mean", Family::reduction, 1, 3, reduce<mean>},
    {"max", Family::reduction, 1, 2, reduce<max>},
    {"min", Family::reduction, 1, 2, reduce<min>},
    {"argmax", Family::order, 1, 2, arg},
    {"top_k", Family::order, 1, 3, top},
    {"cumsum", Family::order, 1, 2,
     [](Site& s) {
       Value x = with_axes(s.number(0));
       CumsumOptions options{s.random.chance(30), s.random.chance(30)};
       return Values{s.tame(cumsum(x, s.axis(x), options, s.label))};
     }},

    {"softmax", Family::softmax, 1, 2,
     [](Site& s) {
       Value x = with_axes(s.floating(0));
       return Values{softmax(x, s.axis(x), s.label)};
     }},
    {"log_softmax", Family::softmax, 1, 1,
     [](Site& s) {
       Value x = with_axes(s.floating(0));
       return Values{s.tame(log_softmax(x, s.axis(x), s.label))};
     }},
    {"layer_norm", Family::softmax, 3, 2,
     [](Site& s) {
       Value x = with_axes(s.real(0));
       std::int64_t n = x.shape()[-1];
       return Values{s.tame(layer_norm(x, s.vector(1, x.dtype(), n), s.vector(2, x.dtype(), n), 1e-2, s.label))};
     }},
    {"rms_norm", Family::softmax, 2, 1,
     [](Site& s) {
       Value x = with_axes(s.real(0));
       return Values{s.tame(rms_norm(x, s.vector(1, x.dtype(), x.shape()[-1]), 1e-2, s.label))};
     }},
    {"cross_entropy", Family::softmax, 2, 1,
     [](Site& s) {
       return Values{s.tame(cross_entropy(Site::fit(s.real(0), {3, 4}), s.indices(1, 4, {3}), s.label))};
     }},

    {"gather", Family::gather, 2, 3, gathers},
    {"scatter_add", Family::gather, 3, 2, scatters},
    {"embedding", Family::gather, 2, 1, embeds},
    {"transpose", Family::movement, 1, 3, [](Site& s) { return Values{transpose(s.matrices(0), s.label)}; }},
    {"permute", Family::movement, 1, 2, permutes},
    {"slice", Family::movement, 1, 3, slices},
    {"pad", Family::movement, 1, 1, pads},
    {"concat", Family::movement, 2, 3, joins},
    {"split", Family::movement, 1, 4, splits},
    {"broadcast_like", Family::movement, 2, 1,
     [](Site& s) {
       Value like = s.any(1);
       return Values{broadcast_like(Site::fit(s.number(0), like.shape().rank() ? Shape{1} : Shape{}), like, s.label)};
     }},
    {"reshape", Family::view, 1, 4, reshapes},
    {"flatten", Family::view, 1, 1, [](Site& s) { return Values{flatten(with_axes(s.any(0)), 0, s.label)}; }},
    {"unsqueeze", Family::view, 1, 1, [](Site& s) { return Values{squeeze(unsqueeze(s.any(0), 0), 0, s.label)}; }},

    {"random_uniform", Family::random, 1, 2, [](Site& s) { return Values{random_uniform(s.real(0), -2, 2, s.label)}; }},
    {"random_normal", Family::random, 1, 1,
     [](Site& s) { return Values{s.tame(random_normal(s.real(0), 0, 1, s.label))}; }},
    {"dropout", Family::random, 1, 2, [](Site& s) { return Values{s.tame(dropout(s.real(0), 0.3, s.label))}; }},

    {"cpu_mix", Family::cpu_only, 2, 0,
     [](Site& s) {
       Value x = Site::as(s.any(0), f32);
       return emit(cpu_mix, {x, Site::fit(Site::as(s.any(1), f32), x.shape())});
     }},
    {"cpu_pair", Family::cpu_only, 1, 0, [](Site& s) { return emit(cpu_pair, {Site::as(s.any(0), f32)}); }},
    {"cpu_effect", Family::cpu_only, 1, 0, cpu_effect_of},

    {"read", Family::state, 1, 0, read},
    {"assign", Family::state, 2, 0, assign},
    {"swap", Family::state, 2, 0, swap},
    {"optimizer", Family::optimizer, 4, 0, optimizer},
    {"if_", Family::control, 2, 0, branch},
    {"while_", Family::control, 2, 0, loop},
    {"output", Family::result, 1, 0, output},
    {"record", Family::result, 1, 0, record},
};

}  // namespace

std::span<const Kind> kinds() { return kKinds; }

int kind_of(std::string_view name) {
  auto found = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& kind) { return kind.name == name; });
  if (found == std::end(kKinds)) throw Error("kind_of", Where(), std::string(name), "take a name of the table");
  return static_cast<int>(found - std::begin(kKinds));
}

}  // namespace graphsink::testing
