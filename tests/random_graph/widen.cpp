// What recipes have beside what random_recipe() draws: it is added by numbers of its own, so that recipes of old seeds
// stay what they are.
#include <algorithm>
#include <array>

#include "site.h"

namespace graphsink::testing {
namespace {

class Widening {
 public:
  Widening(Recipe recipe, std::uint64_t seed) : random_(seed ^ 0x5deece66d5deece6), recipe_(std::move(recipe)) {
    for (const Entry& entry : recipe_.entries) find_ids(entry);
  }

  Recipe run() {
    for (Entry& entry : recipe_.entries) widen(entry);
    variables();
    if (random_.chance(35)) loop();
    commits();
    options();
    return std::move(recipe_);
  }

 private:
  void find_ids(const Entry& entry) {
    next_id_ = std::max(next_id_, entry.id + 1);
    if (entry.kind == variable_) variables_.push_back(entry.id);
    for (const auto& body : entry.bodies)
      for (const Entry& inner : body) find_ids(inner);
  }

  std::uint64_t bits() { return random_.next() | 1; }  // never 0
  std::size_t draw(std::size_t n) { return static_cast<std::size_t>(random_.below(static_cast<int>(n))); }
  Entry entry(std::string_view name, std::vector<Pick> picks, std::uint64_t wide) {
    Entry made;
    made.id = next_id_++;
    made.kind = kind_of(name);
    made.picks = std::move(picks);
    made.bits = random_.next();
    made.wide = wide;
    return made;
  }
  Pick rate() { return {rates_.empty() ? -1 : rates_[draw(rates_.size())], 0}; }

  void widen(Entry& entry) {
    if (random_.chance(60)) entry.wide = wide_[static_cast<std::size_t>(entry.kind)] ? bits() : 0;
    for (auto& body : entry.bodies) {
      for (Entry& inner : body) widen(inner);
      if (random_.chance(30)) body.insert(body.begin(), drawing({entry.picks[0].entry, 0}));
      if (random_.chance(20)) body.push_back(assignment({body.empty() ? entry.picks[1].entry : body.back().id, 0}));
    }
    if (entry.kind == loop_ && entry.wide != 0) add_to_condition(entry);
  }

  Entry drawing(const Pick& like) {
    return entry(std::array{"random_uniform", "random_normal", "randint", "bernoulli", "dropout"}[draw(5)], {like}, 0);
  }
  Entry assignment(const Pick& value) {
    const Pick variable{variables_.empty() ? -1 : variables_[draw(variables_.size())], 0};
    return entry("assign", {variable, value}, 0);
  }

  // Rates, and parameters of one type, in front of everything.
  void variables() {
    std::vector<Entry> made;
    for (int n = 1 + random_.below(2); n > 0; --n) made.push_back(entry("variable", {}, bits()));
    for (const Entry& rate : made) rates_.push_back(rate.id);
    for (int n = 1 + random_.below(3); n > 0; --n) {
      made.push_back(entry("variable", {}, 0));
      if (!parameters_.empty() && random_.chance(60)) made.back().bits = made[made.size() - 2].bits;
      parameters_.push_back(made.back().id);
    }
    recipe_.entries.insert(recipe_.entries.begin(), made.begin(), made.end());
    parameters_.insert(parameters_.end(), rates_.begin(), rates_.end());
    parameters_.insert(parameters_.end(), variables_.begin(), variables_.end());
  }

  // One more loop, whose results are an output, and mostly a gradient through it.
  void loop() {
    std::vector<Entry>& entries = recipe_.entries;
    const std::size_t place = entries.size() / 2;
    const int first = entries[draw(place)].id;
    Entry made = entry("while_", {{first, 0}, {entries[draw(place)].id, 0}}, bits());
    made.bodies.emplace_back();
    made.bodies[0].push_back(entry(random_.chance(50) ? "mul" : "add", {{made.id, 0}, {made.id, 1}}, 0));
    add_to_condition(made);
    std::vector<Entry> behind{entry("output", {{made.id, random_.below(3)}}, 0)};
    if (random_.chance(60)) {
      behind.push_back(entry("gradient", {{made.id, 0}, {first, 0}}, 0));
      behind.push_back(entry("output", {{behind.back().id, 0}}, 0));
    }
    behind.insert(behind.begin(), std::move(made));
    entries.insert(entries.begin() + static_cast<std::ptrdiff_t>(place), behind.begin(), behind.end());
  }

  void add_to_condition(Entry& loop) {
    if (!random_.chance(40)) return;
    loop.bodies.resize(1);
    loop.bodies.emplace_back();
    if (random_.chance(50)) loop.bodies[1].push_back(drawing({loop.id, 0}));
    if (random_.chance(70) && !variables_.empty()) {  // which tells how often the condition was asked
      const Pick variable{variables_[draw(variables_.size())], 0};
      loop.bodies[1].push_back(entry("read", {variable}, 0));
      loop.bodies[1].push_back(entry("add", {{loop.bodies[1].back().id, 0}, {loop.id, 0}}, 0));
      loop.bodies[1].push_back(entry("assign", {variable, {loop.bodies[1].back().id, 0}}, 0));
    }
    if (random_.chance(30)) loop.bodies[1].push_back(entry("tanh", {{loop.id, 0}}, 0));
  }

  // Optimizers and ops of the user's that commit, in any order, somewhere behind the sources.
  void commits() {
    auto parameter = [&] { return Pick{parameters_[draw(parameters_.size())], 0}; };
    std::vector<Entry>& entries = recipe_.entries;
    for (Entry& known : entries)
      if (known.kind == optimizer_) known.picks.insert(known.picks.end(), {rate(), rate()});
    for (int n = 1 + random_.below(3); n > 0; --n) {
      const std::size_t half = entries.size() / 2, place = half + draw(entries.size() - half + 1);
      const Pick before{entries[draw(place)].id, 0};
      const Entry made =
          random_.chance(50)
              ? entry("commit", {parameter(), rate(), random_.chance(70) ? parameter() : before}, bits())
              : entry("optimizer", {parameter(), parameter(), before, parameter(), rate(), rate()}, bits());
      entries.insert(entries.begin() + static_cast<std::ptrdiff_t>(place), made);
    }
  }

  void options() {
    Recipe::Options& options = recipe_.options;
    recipe_.steps = 3 + recipe_.steps % 2;  // what is wider costs more
    options.check_finite = random_.chance(40);
    if (random_.chance(50)) options.replay_every = random_.chance(70) ? 1 : 2;
    options.poison = random_.chance(50);
    options.steps_per_launch = random_.chance(50) ? 0 : random_.below(4);
    if (random_.chance(35)) options.default_placement = random_.chance(50) ? on_cpu : on_device;
  }

  // Not static: the table of kinds is filled before main(), in no certain order.
  const int variable_ = kind_of("variable"), optimizer_ = kind_of("optimizer"), loop_ = kind_of("while_");
  const std::vector<bool> wide_ = [] {
    std::vector<bool> wide(kinds().size());
    for (const char* name : {"optimizer", "while_", "switch_", "attention", "found"}) wide[kind_of(name)] = true;
    return wide;
  }();

  Random random_;
  Recipe recipe_;
  int next_id_ = 0;
  std::vector<int> variables_, rates_, parameters_;
};

}  // namespace

Recipe widen(Recipe recipe, std::uint64_t seed) { return Widening(std::move(recipe), seed).run(); }

}  // namespace graphsink::testing
