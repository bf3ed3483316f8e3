#include <algorithm>
#include <array>

#include "ir/graph_data.h"
#include "site.h"

namespace graphsink::testing {
namespace {

constexpr std::int64_t kMaxElements = 160;
constexpr int kMaxRank = 4;

bool broadcasts(const Shape& a, const Shape& b) {
  for (int d = 1; d <= std::min(a.rank(), b.rank()); ++d)
    if (a[-d] != b[-d] && a[-d] != 1 && b[-d] != 1) return false;
  return true;
}

// Small enough for what comes after it.
Value limited(const Value& v) {
  Shape shape = v.shape();
  if (shape.size() > kMaxElements) return Site::fit(v, {kMaxElements / 4, 2});
  return shape.rank() > kMaxRank ? reshape(v, {-1, shape[-2], shape[-1]}) : v;
}

bool contains(const std::vector<Entry>& entries, int kind) {
  return std::any_of(entries.begin(), entries.end(), [&](const Entry& entry) {
    auto has = [&](const std::vector<Entry>& body) { return contains(body, kind); };
    return entry.kind == kind || std::any_of(entry.bodies.begin(), entry.bodies.end(), has);
  });
}

bool uses_host(const std::vector<Entry>& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const Entry& entry) {
    const Kind& kind = kinds()[static_cast<std::size_t>(entry.kind)];
    return entry.on_cpu || kind.family == Family::cpu_only ||
           std::any_of(entry.bodies.begin(), entry.bodies.end(), uses_host);
  });
}

std::vector<TensorType> types_of(const Values& values) {
  std::vector<TensorType> types;
  for (const Value& v : values) types.push_back(v.type());
  return types;
}

}  // namespace

std::span<const Kind> kinds() {
  static const std::vector<Kind> kAll = [] {
    std::vector<Kind> all;
    for (auto kinds : {arithmetic_kinds(), movement_kinds(), cpu_kinds(), state_kinds(), size_kinds()})
      all.insert(all.end(), kinds.begin(), kinds.end());
    return all;
  }();
  return kAll;
}

int kind_of(std::string_view name) {
  auto all = kinds();
  auto found = std::find_if(all.begin(), all.end(), [&](const Kind& kind) { return kind.name == name; });
  if (found == all.end()) throw Error("kind_of", Where(), std::string(name), "take a name of the table");
  return static_cast<int>(found - all.begin());
}

// --- Site

Value Site::any(int i) const {
  auto at = static_cast<std::size_t>(i);
  return building.value(at < entry.picks.size() ? entry.picks[at] : Pick{});
}
Value Site::number(int i) const {
  Value v = any(i);
  return v.dtype() == boolean || v.dtype() == u8 ? as(v, f32) : v;
}
Value Site::floating(int i) const {
  Value v = any(i);
  return is_float(v.dtype()) ? v : as(v, f32);
}
Value Site::real(int i) const {
  Value v = any(i);
  return v.dtype() == f64 ? v : as(v, f32);
}

Value Site::beside(int i, const Value& other) {
  Value v = as(any(i), other.dtype());
  Shape wanted = other.shape();
  Shape now = v.shape();
  for (int d = 0; d < std::max(0, now.rank() - wanted.rank()); ++d)
    if (now[d] != 1) return fit(v, wanted);
  if (broadcasts(now, wanted)) {
    Shape both = now.rank() > wanted.rank() ? now : wanted;
    for (int d = 1; d <= std::min(now.rank(), wanted.rank()); ++d) both[-d] = std::max(now[-d], wanted[-d]);
    if (both.size() <= kMaxElements) return v;
  }
  int way = random.below(3);
  if (way == 0 && wanted.rank() > 0) return fit(v, Shape{wanted[-1]});
  if (way == 1)
    for (int d = 0; d < wanted.rank(); ++d)
      if (random.chance(30)) wanted[d] = 1;
  return fit(v, wanted);
}

Value Site::matrices(int i) const {
  Value v = floating(i);
  if (v.shape().rank() >= 2) return v;
  return reshape(v, {1, -1});
}

Value Site::indices(int i, std::int64_t n, const Shape& shape) const {
  Value v = fit(as(any(i), i32), shape);
  return minimum(maximum(v, 0), static_cast<int>(n - 1));
}

DType Site::dtype() {
  constexpr std::array kDTypes{f32, f32, f32, f32, f64, i32, f16, bf16, i64, u8, boolean};
  return kDTypes[static_cast<std::size_t>(random.below(kDTypes.size()))];
}

Shape Site::shape() {
  constexpr std::array<std::int64_t, 6> kSizes{1, 2, 3, 4, 5, 8};
  Shape shape;
  int rank = random.below(10) * 4 / 8;
  for (int d = 0; d < std::min(rank, kMaxRank); ++d) {
    std::int64_t n = kSizes[static_cast<std::size_t>(random.below(kSizes.size()))];
    shape.push_back(shape.size() * n <= kMaxElements / 2 ? n : 1);
  }
  return shape;
}

int Site::state_number(int i) const {
  auto at = static_cast<std::size_t>(i);
  if (at >= entry.picks.size()) return -1;
  auto found = building.state_of.find(entry.picks[at].entry);
  return found == building.state_of.end() ? -1 : found->second;
}
Building::State* Site::state(int i) const {
  const int number = state_number(i);
  return number < 0 ? nullptr : &building.states[static_cast<std::size_t>(number)];
}

Value Site::tame(const Value& v) {
  Placement at = random.chance(50) ? placement : Placement{};
  if (!is_float(v.dtype())) return v.dtype() == i32 || v.dtype() == i64 ? minimum(maximum(v, -100, at), 100, at) : v;
  switch (random.below(3)) {
    case 0:
      return tanh(v, at);
    case 1:
      return sin(v, at);
    default:
      return minimum(maximum(v, -8.0, at), 8.0, at);
  }
}

Value Site::as(const Value& v, DType dtype) {
  if (v.dtype() == dtype) return v;
  bool may_be_large = is_float(dtype) && !is_float(v.dtype());
  return may_be_large ? mul(cast(v, dtype), 0.03125) : cast(v, dtype);
}

Value Site::with_axes(const Value& v) { return v.shape().rank() == 0 ? reshape(v, {1}) : v; }

Value Site::fit(const Value& v, const Shape& shape) {
  if (v.shape() == shape) return v;
  std::int64_t have = v.shape().size(), want = shape.size();
  Value flat = v;
  if (have != want) flat = v.shape().rank() == 1 ? v : reshape(v, {have});
  if (have > want) flat = slice(flat, {0}, {want});
  if (have < want) flat = pad(flat, {0}, {want - have}, 1);
  return flat.shape() == shape ? flat : reshape(flat, shape);
}

// --- Building

Building::Building(const Recipe& recipe)
    : has_effects(contains(recipe.entries, kind_of("cpu_effect"))),
      own_calls(library_calls(*this)),
      calls(own_calls.get()) {
  make_all(recipe);
  if (recipe.on_second > 0 && cuda_device_count() != 1) place_on_second(recipe.on_second);
}

Building::Building(const Recipe& recipe, Calls& calls, Graph graph)
    : graph(std::move(graph)), has_effects(contains(recipe.entries, kind_of("cpu_effect"))), calls(&calls) {}

void Building::make_all(const Recipe& recipe) {
  make(recipe.entries);
  if (!uses_host(recipe.entries) && recipe.options.default_placement == Placement{}) {
    for (const auto& [name, value] : vectors) calls->record(name, value);
    counts["record: of several numbers"] += static_cast<int>(vectors.size());
  }
  // A graph without a result would have nothing to compare.
  if (outputs.empty()) calls->output("nothing", value({}));
}

// Those without a placement that have a CUDA body, commit nothing and are in no body of a loop or branch.
void Building::place_on_second(int percent) {
  for (std::size_t id = 0; id < graph.data()->nodes.size(); ++id) {
    Node& node = graph.data()->nodes[id];
    bool can_be_there = node.region == 0 && node.bodies.empty() && !is_source(*node.op) &&
                        body_for(*node.op, DeviceKind::cuda) && !writes_variables(*node.op, node.inputs.size());
    bool is_drawn = Random(id).chance(percent);
    if (can_be_there && is_drawn && node.placement == Placement{}) node.placement = on_device(1);
  }
  place_variables_on_second(percent);
}

// Those that one op commits live together.
void Building::place_variables_on_second(int percent) {
  GraphData& data = *graph.data();
  auto place = [&](const Variable& variable) { variable.data()->placement = on_device(1); };
  for (std::size_t i = 0; i < data.variables.size(); ++i)
    if (!data.variables[i].committed && Random(i + 1000).chance(percent)) place(data.variables[i].variable);
  for (std::size_t id = 0; id < data.nodes.size(); ++id) {
    const Node& node = data.nodes[id];
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (access_of(*node.op, i, node.inputs.size()) == Access::write && Random(id).chance(percent))
        place(data.nodes[static_cast<std::size_t>(node.inputs[i].node)].attrs.as<VariableAttrs>().variable);
  }
}

Tensor Building::Fed::at(int step) const {
  std::uint64_t seed = bits + static_cast<std::uint64_t>(is_feed ? step : step >= kRewrittenAt);
  Shape shape = value.shape().examples();
  if (is_open) shape[0] = Random(seed).below(kMaxOpenRows + 1);
  return Tensor::uniform(shape, seed, -3.0f, 3.0f).to(value.dtype());
}

Tensor Building::State::rewritten() const {
  return Tensor::uniform(initial.shape(), bits, -3.0f, 3.0f).to(initial.dtype());
}

Value Building::value(const Pick& pick) {
  auto found = visible.find(pick.entry);
  if (found == visible.end() || found->second.empty()) {
    return graph.constant(Tensor(Shape{2}, std::vector<float>{0.5f, -1.25f}));
  }
  return found->second[static_cast<std::size_t>(pick.output) % found->second.size()];
}

void Building::make(const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) make(entry);
}

void Building::make(const Entry& entry) {
  calls->within(entry.id, [&] {
    make_here(entry);
    return true;
  });
}

void Building::make_here(const Entry& entry) {
  const Kind& kind = kinds()[static_cast<std::size_t>(entry.kind)];
  Values taken;
  for (const Pick& pick : entry.picks) taken.push_back(value(pick));
  Site site(*this, entry);
  const std::size_t without_grad = nodes_without_grad.size();
  const GraphData& data = *graph.data();
  const int first = static_cast<int>(data.nodes.size());
  bool has_no_grad = kind.family == Family::cpu_only;
  auto consider = [&](int node) { has_no_grad = has_no_grad || nodes_without_grad.count(node) != 0; };
  for (const Value& v : taken) consider(v.node());
  if (kind.family == Family::control)  // bodies may read and assign Variables
    for (const VariableUse& use : data.variables) consider(use.assigned.node);
  const std::size_t first_region = data.regions.size();
  Values made = kind.make(site);
  for (std::size_t region = first_region; region < data.regions.size(); ++region)  // a body may hand on what is outside
    for (ValueRef v : data.regions[region].results) consider(v.node);
  if (kind.family == Family::control) has_no_grad = has_no_grad || nodes_without_grad.size() > without_grad;
  for (const Value& v : made) consider(v.node());  // what a Variable was assigned earlier, for example
  for (Value& v : made) v = limited(v);
  // The Variables that bodies assign are other results of the same nodes.
  for (int node = first; has_no_grad && node < static_cast<int>(data.nodes.size()); ++node)
    nodes_without_grad.insert(node);
  operands[entry.id] = types_of(taken);
  types[entry.id] = types_of(made);
  visible[entry.id] = std::move(made);
  ++counts["kind: " + std::string(kind.name)];
  ++counts["family: " + std::string(to_string(kind.family))];
}

}  // namespace graphsink::testing
