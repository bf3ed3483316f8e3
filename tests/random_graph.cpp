#include "random_graph.h"

#include <algorithm>
#include <array>
#include <sstream>

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

std::vector<TensorType> types_of(const Values& values) {
  std::vector<TensorType> types;
  for (const Value& v : values) types.push_back(v.type());
  return types;
}

}  // namespace

std::uint64_t Random::next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::string_view to_string(Family family) {
  constexpr std::array<std::string_view, 19> kNames{
      "source",   "unary", "binary", "choice", "cast",     "product", "reduction", "order",   "softmax", "gather",
      "movement", "view",  "random", "window", "cpu_only", "state",   "optimizer", "control", "result"};
  return kNames[static_cast<std::size_t>(family)];
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

Building::State* Site::state(int i) const {
  auto at = static_cast<std::size_t>(i);
  if (at >= entry.picks.size()) return nullptr;
  auto found = building.state_of.find(entry.picks[at].entry);
  return found == building.state_of.end() ? nullptr : &building.states[static_cast<std::size_t>(found->second)];
}

Value Site::tame(const Value& v) {
  Label at = random.chance(50) ? label : Label{};
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

Building::Building(const Recipe& recipe) {
  make(recipe.entries);
  // A graph without a result would have nothing to compare.
  if (outputs.empty()) {
    graph.output("nothing", value({}));
    outputs.emplace_back("nothing");
  }
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
  const Kind& kind = kinds()[static_cast<std::size_t>(entry.kind)];
  Values taken;
  for (const Pick& pick : entry.picks) taken.push_back(value(pick));
  Site site(*this, entry);
  Values made = kind.make(site);
  for (Value& v : made) v = limited(v);
  bool has_no_grad = kind.family == Family::cpu_only || kind.family == Family::control;
  for (const Value& v : taken) has_no_grad = has_no_grad || nodes_without_grad.count(v.node()) != 0;
  if (has_no_grad)
    for (const Value& v : made) nodes_without_grad.insert(v.node());
  operands[entry.id] = types_of(taken);
  types[entry.id] = types_of(made);
  visible[entry.id] = std::move(made);
  ++counts["family " + std::string(to_string(kind.family))];
}

// --- drawing

namespace {

class Drawing {
 public:
  explicit Drawing(std::uint64_t seed) : random_(seed) {
    constexpr std::array kLabels{0, 0, 8, 35};
    constexpr std::array kCpuOnly{0, 0, 6, 18};
    on_cpu_ = kLabels[draw(kLabels.size())];
    cpu_only_ = kCpuOnly[draw(kCpuOnly.size())];
    for (const Kind& kind : kinds()) total_weight_ += kind.weight;
  }

  Recipe run() {
    recipe_.steps = 3 + random_.below(4);
    sources();
    int lanes = 1 + random_.below(5), ops = 4 + random_.below(28);
    for (int i = 0; i < lanes; ++i) lanes_.push_back(some());
    while (ops-- > 0) recipe_.entries.push_back(anything());
    results(lanes);
    return std::move(recipe_);
  }

 private:
  std::size_t draw(std::size_t n) { return static_cast<std::size_t>(random_.below(static_cast<int>(n))); }

  Entry entry(std::string_view name, std::vector<Pick> picks) {
    Entry entry;
    entry.id = next_id_++;
    entry.kind = kind_of(name);
    entry.picks = std::move(picks);
    entry.bits = random_.next();
    return entry;
  }

  void add(std::vector<int>& ids, Entry entry) {
    ids.push_back(entry.id);
    recipe_.entries.push_back(std::move(entry));
  }

  void sources() {
    for (int n = 1 + random_.below(2); n > 0; --n) add(ids_, entry("input", {}));
    for (int n = random_.below(3); n > 0; --n) add(ids_, entry("feed", {}));
    for (int n = random_.below(5); n > 0; --n) add(variables_, entry("variable", {}));
    ids_.insert(ids_.end(), variables_.begin(), variables_.end());
    if (random_.chance(30)) add(ids_, entry("constant", {}));
    if (random_.chance(20)) add(ids_, entry("step", {}));
  }

  // Recent values more often than old ones.
  int some() {
    std::size_t n = ids_.size();
    return ids_[random_.chance(50) ? draw(n) : n - 1 - draw(std::min<std::size_t>(n, 6))];
  }
  Pick pick(int id) { return {id, random_.chance(70) ? 0 : random_.below(3)}; }
  int variable() { return variables_[draw(variables_.size())]; }

  Entry anything() {
    if (!variables_.empty() && random_.chance(18)) return with_state();
    if (depth_ < 2 && random_.chance(depth_ == 0 ? 7 : 4)) return control();
    return op();
  }

  // The next op of one of the lanes, which are chains that mostly do not touch.
  Entry op() {
    std::size_t lane = draw(lanes_.size());
    int index = chosen();
    std::vector<Pick> picks{pick(random_.chance(85) ? lanes_[lane] : some())};
    for (int i = 1; i < kinds()[static_cast<std::size_t>(index)].picks; ++i) picks.push_back(pick(some()));
    Entry made = entry(kinds()[static_cast<std::size_t>(index)].name, std::move(picks));
    made.on_cpu = random_.chance(on_cpu_);
    lanes_[lane] = made.id;
    ids_.push_back(made.id);
    return made;
  }

  int chosen() {
    if (random_.chance(cpu_only_)) return kind_of(std::array{"cpu_mix", "cpu_pair", "cpu_effect"}[draw(3)]);
    int left = random_.below(total_weight_);
    for (std::size_t i = 0;; ++i)
      if ((left -= kinds()[i].weight) < 0) return static_cast<int>(i);
  }

  Entry with_state() {
    if (depth_ > 0) return op();
    int what = random_.below(10);
    Entry made;
    if (what < 3) {
      made = entry("read", {pick(variable())});
    } else if (what < 7) {
      made = entry("assign", {pick(variable()), pick(random_.chance(40) ? variable() : some())});
    } else if (what < 9) {
      made = entry("swap", {pick(variable()), pick(variable())});
    } else {
      made = entry("optimizer", {pick(variable()), pick(variable()), pick(some()), pick(some())});
    }
    ids_.push_back(made.id);
    return made;
  }

  Entry control() {
    bool is_loop = random_.chance(50);
    Entry made = entry(is_loop ? "while_" : "if_", {pick(some()), pick(some())});
    auto saved_ids = ids_;
    auto saved_lanes = lanes_;
    ++depth_;
    for (int body = 0; body < (is_loop ? 1 : 2); ++body) {
      made.bodies.emplace_back();
      if (is_loop) ids_.push_back(made.id);
      if (is_loop) lanes_ = {made.id, made.id};
      for (int n = random_.below(5); n > 0; --n) made.bodies.back().push_back(anything());
      ids_ = saved_ids;
      lanes_ = saved_lanes;
    }
    --depth_;
    ids_.push_back(made.id);
    lanes_[draw(lanes_.size())] = made.id;
    return made;
  }

  void results(int lanes) {
    for (int i = 0; i < lanes; ++i)
      recipe_.entries.push_back(entry("output", {pick(lanes_[static_cast<std::size_t>(i)])}));
    for (int n = random_.below(3); n > 0; --n) recipe_.entries.push_back(entry("output", {pick(some())}));
    if (!variables_.empty() && random_.chance(40)) recipe_.entries.push_back(entry("output", {pick(variable())}));
    for (int n = 1 + random_.below(2); n > 0; --n) recipe_.entries.push_back(entry("record", {pick(some())}));
  }

  Random random_;
  Recipe recipe_;
  int next_id_ = 0, depth_ = 0, total_weight_ = 0;
  int on_cpu_ = 0, cpu_only_ = 0;  // percent
  std::vector<int> ids_, variables_, lanes_;
};

}  // namespace

Recipe random_recipe(std::uint64_t seed) { return Drawing(seed).run(); }

// --- printing

namespace {

void print(std::ostream& out, const std::vector<Entry>& entries, const Building* building, int depth) {
  auto type = [](const std::map<int, std::vector<TensorType>>& types, int id, std::size_t i) {
    auto found = types.find(id);
    return found == types.end() || i >= found->second.size() ? std::string() : " " + to_string(found->second[i]);
  };
  for (const Entry& entry : entries) {
    out << std::string(static_cast<std::size_t>(2 * depth), ' ') << '#' << entry.id << ' '
        << kinds()[static_cast<std::size_t>(entry.kind)].name << '(';
    for (std::size_t i = 0; i < entry.picks.size(); ++i) {
      const Pick& pick = entry.picks[i];
      out << (i ? ", #" : "#") << pick.entry;
      if (pick.output) out << '.' << pick.output;
      if (building) out << type(building->operands, entry.id, i);
    }
    out << ')' << (entry.on_cpu ? " on_cpu" : "");
    for (std::size_t i = 0; building && !type(building->types, entry.id, i).empty(); ++i)
      out << (i ? "," : " ->") << type(building->types, entry.id, i);
    out << "  bits " << std::hex << entry.bits << std::dec << '\n';
    for (std::size_t i = 0; i < entry.bodies.size(); ++i) {
      out << std::string(static_cast<std::size_t>(2 * depth + 1), ' ') << (i ? "else\n" : "body\n");
      print(out, entry.bodies[i], building, depth + 1);
    }
  }
}

}  // namespace

std::string to_string(const Recipe& recipe) {
  std::ostringstream out;
  out << recipe.steps << " steps\n";
  std::unique_ptr<Building> building;
  try {
    building = std::make_unique<Building>(recipe);
  } catch (const std::exception& e) {
    out << "(cannot be built: " << e.what() << ")\n";
  }
  print(out, recipe.entries, building.get(), 0);
  return out.str();
}

// --- shrinking

namespace {

using Entries = std::vector<Entry>;

void redirect(Entries& entries, int from, const Pick& to) {
  for (Entry& entry : entries) {
    for (Pick& pick : entry.picks)
      if (pick.entry == from) pick = to;
    for (Entries& body : entry.bodies) redirect(body, from, to);
  }
}

// Calls f(entries, i) for each entry, bodies included, later ones first, until f returns true.
template <class F>
bool visit(Entries& entries, const F& f) {
  for (std::size_t i = entries.size(); i-- > 0;) {
    for (Entries& body : entries[i].bodies)
      if (visit(body, f)) return true;
    if (f(entries, i)) return true;
  }
  return false;
}

class Shrinking {
 public:
  Shrinking(Recipe recipe, const std::function<bool(const Recipe&)>& fails) : best_(std::move(recipe)), fails_(fails) {}

  Recipe run() {
    while (take_ranges() || change_entries() || change_steps()) {
    }
    return std::move(best_);
  }

 private:
  bool keep(Recipe candidate) {
    if (!fails_(candidate)) return false;
    best_ = std::move(candidate);
    return true;
  }

  bool take_ranges() {
    bool is_smaller = false;
    for (std::size_t length = best_.entries.size() / 2; length > 1; length /= 2) {
      for (std::size_t end = best_.entries.size(); end >= length; end -= std::min(end, length)) {
        Recipe candidate = best_;
        auto first = candidate.entries.begin() + static_cast<std::ptrdiff_t>(end - length);
        candidate.entries.erase(first, first + static_cast<std::ptrdiff_t>(length));
        is_smaller = keep(std::move(candidate)) || is_smaller;
        end = std::min(end, best_.entries.size());
      }
    }
    return is_smaller;
  }

  // Tries `change` on the entry with this id in a copy of the best recipe.
  template <class F>
  bool attempt(int id, const F& change) {
    Recipe candidate = best_;
    visit(candidate.entries, [&](Entries& entries, std::size_t i) {
      if (entries[i].id != id) return false;
      change(candidate, entries, i);
      return true;
    });
    return keep(std::move(candidate));
  }

  bool change_entries() {
    Entries entries = best_.entries;  // the first change that is kept ends the walk
    return visit(entries, [&](Entries& of, std::size_t i) { return change_entry(of[i]); });
  }

  bool change_entry(const Entry& entry) {
    std::vector<Pick> instead = entry.picks;
    instead.emplace_back();
    for (const Pick& pick : instead) {
      if (attempt(entry.id, [&](Recipe& recipe, Entries& entries, std::size_t i) {
            entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
            redirect(recipe.entries, entry.id, pick);
          }))
        return true;
    }
    for (std::size_t body = 0; body < entry.bodies.size(); ++body) {
      if (attempt(entry.id, [&](Recipe&, Entries& entries, std::size_t i) {
            Entries inner = entries[i].bodies[body];
            entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
            entries.insert(entries.begin() + static_cast<std::ptrdiff_t>(i), inner.begin(), inner.end());
          }))
        return true;
    }
    for (std::size_t p = 0; p < entry.picks.size(); ++p) {
      if (entry.picks[p] == Pick{}) continue;
      if (attempt(entry.id, [&](Recipe&, Entries& entries, std::size_t i) { entries[i].picks[p] = {}; })) return true;
    }
    if (entry.on_cpu && attempt(entry.id, [](Recipe&, Entries& entries, std::size_t i) { entries[i].on_cpu = false; }))
      return true;
    return entry.bits != 0 && attempt(entry.id, [](Recipe&, Entries& entries, std::size_t i) { entries[i].bits = 0; });
  }

  bool change_steps() {
    if (best_.steps <= 1) return false;
    Recipe candidate = best_;
    --candidate.steps;
    return keep(std::move(candidate));
  }

  Recipe best_;
  const std::function<bool(const Recipe&)>& fails_;
};

}  // namespace

Recipe shrink(Recipe recipe, const std::function<bool(const Recipe&)>& fails) {
  return Shrinking(std::move(recipe), fails).run();
}

}  // namespace graphsink::testing
