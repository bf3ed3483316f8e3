// Random graphs for tests: a recipe drawn from a seed, the graph that it stands for, and the way to a smaller recipe.
// Every recipe is a graph: operands are made to fit, and what is missing is a constant. So entries can be taken away.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "calls.h"
#include "graphsink/graphsink.h"

namespace graphsink::testing {

// The same numbers on every machine (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators").
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  // In [0, n). Precondition: n > 0.
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

// An output of an entry. In the body of a loop, outputs of the loop are its state. Of an entry that is not there: a
// constant.
struct Pick {
  int entry = -1;
  int output = 0;
  friend bool operator==(const Pick&, const Pick&) = default;
};

struct Entry {
  int id = -1;   // unique in the recipe
  int kind = 0;  // index into kinds(), see site.h
  std::vector<Pick> picks;
  std::uint64_t bits = 0;  // from which the maker of the kind draws what is left open: shapes, axes, sizes
  std::uint64_t wide = 0;  // the same for what widen() has added to the kind; 0: nothing
  bool on_cpu = false;
  std::vector<std::vector<Entry>> bodies;  // if_: then, else; while_: one, and one of its condition if it has entries
};

struct Recipe {
  int steps = 3;
  int on_second = 0;  // percent of the nodes, of those that can, that have a placement on a further device
  std::vector<Entry> entries;

  // How it is run.
  struct Options {
    bool check_finite = false;
    int replay_every = 0;
    bool poison = false;
    int steps_per_launch = 0;  // 0: as many as may be
    Placement default_placement{};
    friend bool operator==(const Options&, const Options&) = default;
  };
  Options options;
};

// What host_effect ops saw, in their order.
struct EffectLog {
  struct Entry {
    int id;
    std::uint64_t hash;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::mutex mutex;
  std::vector<Entry> entries;
};

// Names of counts.
inline constexpr const char* kFoundSize = "size of a result: found";
inline constexpr const char* kRoundedSize = "size of a result: found and rounded up";
// The entry fails from some step on.
inline constexpr const char* kNoBody = "switch_: number of no body";
inline constexpr const char* kOverLimit = "loop: more iterations than its limit";

// With what the names of records of several numbers begin.
inline constexpr const char* kVectorRecord = "vector";

// What stays as it is from step to step is written anew by the caller before this step.
constexpr int kRewrittenAt = 2;
// Open inputs have up to so many rows.
constexpr int kMaxOpenRows = 9;

// The graph of a recipe. Variables are new ones for each.
struct Building {
  struct State {
    Variable variable;
    Tensor initial;
    Value at_start;  // its Value before any assign
    bool is_assigned = false;
    bool is_committed = false;  // by an optimizer
    std::uint64_t bits = 0;     // of rewritten()
    bool is_frozen() const { return !is_assigned && !is_committed; }
    Tensor rewritten() const;  // what the caller writes to it before step kRewrittenAt, if it is frozen
  };
  struct Fed {
    Value value;
    std::uint64_t bits;
    bool is_feed;
    bool is_open = false;  // its first dimension
    // What is given for a step: an input is written before steps 0 and kRewrittenAt, an open one then in other sizes.
    Tensor at(int step) const;
    // Whether the slices of a run that begins with this step are written into memory of Program::stage().
    bool is_staged(int step) const { return is_feed && Random(bits ^ static_cast<std::uint64_t>(step)).chance(40); }
  };

  explicit Building(const Recipe& recipe);
  Building(const Building&) = delete;
  Building& operator=(const Building&) = delete;
  // Makes what the recipe stands for by calls of the oracle's.
  Building(const Recipe& recipe, Calls& calls, Graph graph);

  Graph graph;
  std::vector<State> states;
  std::vector<Fed> fed;
  std::vector<std::string> outputs, records;
  std::shared_ptr<EffectLog> effects = std::make_shared<EffectLog>();
  std::map<std::string, int> counts;  // see counts.h
  bool has_effects = false;           // somewhere in the recipe
  // Whether steps find sizes of results that have no bound.
  bool finds_sizes() const { return counts.contains(kFoundSize) || counts.contains(kRoundedSize); }
  std::map<int, std::vector<TensorType>> types;     // of what each entry made
  std::map<int, std::vector<TensorType>> operands;  // of what its picks are
  Notes notes;

  // While building: what may be picked, which State an entry made, which Values have no gradient.
  void place_on_second(int percent);
  void place_variables_on_second(int percent);
  void make_all(const Recipe& recipe);
  void make(const Entry& entry);
  void make_here(const Entry& entry);
  void make(const std::vector<Entry>& entries);
  Value value(const Pick& pick);
  std::map<int, Values> visible;
  std::map<int, int> state_of;
  int depth = 0;  // bodies around
  std::set<int> nodes_without_grad;
  // Records of several numbers, for graphs without ops on the host: what must be copied decides where ops run there,
  // and graphs of old seeds keep their results.
  std::vector<std::pair<std::string, Value>> vectors;
  std::unique_ptr<Calls> own_calls;
  Calls* calls;
};

// The ops of random graphs that are not built-in, for files of graphs that this thread writes and reads. Effects of
// graphs that are read go to the log.
std::vector<FileOp> cpu_file_ops(std::shared_ptr<EffectLog> log);

// Gives the calls to the library, and notes for the oracle where they went.
std::unique_ptr<Calls> library_calls(Building& building);

Recipe random_recipe(std::uint64_t seed);
// Adds what such a recipe does not have: several optimizers and ops of the user's that commit, in every order, with
// rates that are Variables; random draws and assignments in conditions and bodies; limits; counters that are denormal,
// infinite or huge; steps that fail; options.
Recipe widen(Recipe recipe, std::uint64_t seed);

// The recipe as lines, one for each entry, with the types of what it takes and makes.
std::string to_string(const Recipe& recipe);

// A recipe from which nothing can be taken away without `fails` becoming false, or what 2000 attempts came to.
// Precondition: fails(recipe).
Recipe shrink(Recipe recipe, const std::function<bool(const Recipe&)>& fails);

}  // namespace graphsink::testing
