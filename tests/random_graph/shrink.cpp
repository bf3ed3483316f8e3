#include "random_graph.h"

namespace graphsink::testing {
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
    while (take_ranges() || change_entries() || leave_second_device() || leave_options() || change_steps()) {
    }
    return std::move(best_);
  }

 private:
  bool keep(Recipe candidate) {
    if (attempts_-- <= 0 || !fails_(candidate)) return false;
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
    if (entry.wide != 0 && attempt(entry.id, [](Recipe&, Entries& entries, std::size_t i) { entries[i].wide = 0; }))
      return true;
    return entry.bits != 0 && attempt(entry.id, [](Recipe&, Entries& entries, std::size_t i) { entries[i].bits = 0; });
  }

  bool leave_second_device() {
    if (best_.on_second == 0) return false;
    Recipe candidate = best_;
    candidate.on_second = 0;
    return keep(std::move(candidate));
  }

  bool leave_options() {
    auto change = [&](const auto& of) {
      Recipe candidate = best_;
      of(candidate.options);
      return !(candidate.options == best_.options) && keep(std::move(candidate));
    };
    using Options = Recipe::Options;
    return change([](Options& options) { options = {}; }) ||
           change([](Options& options) { options.check_finite = false; }) ||
           change([](Options& options) { options.replay_every = 0; }) ||
           change([](Options& options) { options.poison = false; }) ||
           change([](Options& options) { options.steps_per_launch = 0; }) ||
           change([](Options& options) { options.default_placement = {}; });
  }

  bool change_steps() {
    if (best_.steps <= 1) return false;
    Recipe candidate = best_;
    --candidate.steps;
    return keep(std::move(candidate));
  }

  Recipe best_;
  int attempts_ = 2000;  // failures that come and go would be shrunk for ever
  const std::function<bool(const Recipe&)>& fails_;
};

}  // namespace

Recipe shrink(Recipe recipe, const std::function<bool(const Recipe&)>& fails) {
  return Shrinking(std::move(recipe), fails).run();
}

}  // namespace graphsink::testing
