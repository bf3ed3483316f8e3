#include <algorithm>
#include <array>

#include "site.h"

namespace graphsink::testing {

std::uint64_t Random::next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

namespace {

class Drawing {
 public:
  explicit Drawing(std::uint64_t seed) : random_(seed) {
    constexpr std::array kPlacements{0, 0, 8, 35};
    constexpr std::array kCpuOnly{0, 0, 8, 20};
    constexpr std::array kCpuOnlyInBodies{0, 50, 80};  // the host drives most of these: islands before and after
    on_cpu_ = kPlacements[draw(kPlacements.size())];
    cpu_only_ = kCpuOnly[draw(kCpuOnly.size())];
    cpu_only_in_bodies_ = kCpuOnlyInBodies[draw(kCpuOnlyInBodies.size())];
    for (const Kind& kind : kinds()) total_weight_ += kind.weight;
  }

  Recipe run() {
    recipe_.steps = 3 + random_.below(4);
    constexpr std::array kOnSecond{0, 0, 10, 40};
    sources();
    int lanes = 1 + random_.below(5), ops = 4 + random_.below(26);
    for (int i = 0; i < lanes; ++i) lanes_.push_back(some());
    while (ops-- > 0) recipe_.entries.push_back(anything());
    results(lanes);
    recipe_.on_second = kOnSecond[draw(kOnSecond.size())];  // drawn last: the graph is the same without it
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
    for (const Pick& pick : entry.picks) std::erase(unused_, pick.entry);
    return entry;
  }

  void add(std::vector<int>& ids, Entry entry) {
    ids.push_back(entry.id);
    recipe_.entries.push_back(std::move(entry));
  }

  void sources() {
    for (int n = 1 + random_.below(2); n > 0; --n) add(ids_, entry("input", {}));
    for (int n = random_.below(3); n > 0; --n) add(ids_, entry("feed", {}));
    for (int n = random_.below(5); n > 0; --n) {
      Entry made = entry("variable", {});
      if (!variables_.empty() && random_.chance(50)) made.bits = recipe_.entries.back().bits;  // of the same type
      add(variables_, std::move(made));
    }
    ids_.insert(ids_.end(), variables_.begin(), variables_.end());
    if (random_.chance(30)) add(ids_, entry("constant", {}));
    if (random_.chance(20)) add(ids_, entry("step", {}));
    sources_ = ids_;
  }

  // Recent values more often than old ones.
  int some() {
    std::size_t n = ids_.size();
    return ids_[random_.chance(50) ? draw(n) : n - 1 - draw(std::min<std::size_t>(n, 6))];
  }
  // For what comes beside a lane: half of the time something that nobody has taken yet.
  int other() { return !unused_.empty() && random_.chance(50) ? unused_[draw(unused_.size())] : some(); }
  Pick pick(int id) { return {id, random_.chance(70) ? 0 : random_.below(3)}; }
  int variable() { return variables_[draw(variables_.size())]; }

  Entry anything() {
    if (depth_ == 0 && random_.chance(last_control_ >= 0 ? 10 : 2)) return gradient();
    if (depth_ == 0 && random_.chance(3)) return sized("open_rows");
    if (random_.chance(3)) return sized("found");
    if (!variables_.empty() && random_.chance(18)) return with_state();
    if (depth_ < 2 && random_.chance(depth_ == 0 ? 8 : 4)) return control();
    return op();
  }

  // The next op of one of the lanes, which are chains that mostly do not touch.
  Entry op() {
    std::size_t lane = draw(lanes_.size());
    int index = chosen();
    std::vector<Pick> picks{pick(random_.chance(85) ? lanes_[lane] : some())};
    for (int i = 1; i < kinds()[static_cast<std::size_t>(index)].picks; ++i) picks.push_back(pick(other()));
    const Kind& kind = kinds()[static_cast<std::size_t>(index)];
    if (kind.family == Family::cpu_only && random_.chance(40)) picks.back() = pick(sources_[draw(sources_.size())]);
    Entry made = entry(kind.name, std::move(picks));
    made.on_cpu = random_.chance(on_cpu_);
    lanes_[lane] = made.id;
    ids_.push_back(made.id);
    unused_.push_back(made.id);
    return made;
  }

  int chosen() {
    if (random_.chance(depth_ > 0 ? std::max(cpu_only_, cpu_only_in_bodies_) : cpu_only_))
      return kind_of(std::array{"cpu_mix", "cpu_pair", "cpu_effect"}[draw(3)]);
    int left = random_.below(total_weight_);
    for (std::size_t i = 0;; ++i)
      if ((left -= kinds()[i].weight) < 0) return static_cast<int>(i);
  }

  Entry with_state() {
    int what = random_.below(depth_ > 0 ? 9 : 10);  // optimizers are not in bodies
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

  Entry sized(std::string_view name) {
    Entry made = entry(name, {pick(some()), pick(some())});
    made.on_cpu = random_.chance(on_cpu_);
    ids_.push_back(made.id);
    unused_.push_back(made.id);
    lanes_[draw(lanes_.size())] = made.id;
    return made;
  }

  // Mostly through the last loop or branch.
  Entry gradient() {
    const bool through = last_control_ >= 0 && random_.chance(80);
    const int of = through ? last_control_ : some(), wrt = through ? trained_ : sources_[draw(sources_.size())];
    Entry made = entry("gradient", {pick(of), {wrt, 0}});
    ids_.push_back(made.id);
    unused_.push_back(made.id);
    lanes_[draw(lanes_.size())] = made.id;
    return made;
  }

  Entry control() {
    bool is_loop = random_.chance(50);
    bool is_choice = !is_loop && random_.chance(40);
    const char* name = is_loop ? (random_.chance(40) ? "scan" : "while_") : is_choice ? "switch_" : "if_";
    const int first = random_.chance(30) ? sources_[draw(sources_.size())] : some();
    Entry made = entry(name, {{first, 0}, pick(some())});
    auto saved_ids = ids_;
    auto saved_lanes = lanes_;
    auto saved_unused = std::exchange(unused_, {});
    ++depth_;
    for (int body = 0; body < (is_loop ? 1 : is_choice ? 3 : 2); ++body) {
      made.bodies.emplace_back();
      if (is_loop) ids_.push_back(made.id);
      if (is_loop) lanes_ = {made.id, made.id};
      for (int n = random_.below(5); n > 0; --n) made.bodies.back().push_back(anything());
      ids_ = saved_ids;
      lanes_ = saved_lanes;
      unused_.clear();
    }
    --depth_;
    unused_ = std::move(saved_unused);
    ids_.push_back(made.id);
    unused_.push_back(made.id);
    lanes_[draw(lanes_.size())] = made.id;
    if (depth_ == 0) {
      last_control_ = made.id;
      trained_ = first;
    }
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
  int last_control_ = -1, trained_ = -1;  // the last loop or branch that is not in a body, and what it began with
  int on_cpu_ = 0, cpu_only_ = 0, cpu_only_in_bodies_ = 0;  // percent
  std::vector<int> ids_, sources_, variables_, lanes_, unused_;
};

}  // namespace

Recipe random_recipe(std::uint64_t seed) { return Drawing(seed).run(); }

}  // namespace graphsink::testing
