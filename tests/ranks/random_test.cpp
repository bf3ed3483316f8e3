// Random programs with collectives in all modes, on every device, against an oracle that shares no code with the
// library: values, records and Variables, and steps that fail on one rank. The environment's GS_GRAPH_SEED=N runs one
// program, and GS_FULL=1 runs 200.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/at.h"
#include "graphsink/graphsink.h"
#include "program_fixture.h"
#include "random_ranks.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace random_test {

constexpr std::int64_t kFeed = 6, kInput = 3, kVariable = 8;  // elements
constexpr std::size_t kSteps = 4;
const std::vector<float> kTable{1, -2, 3, 0.5f};

// A number of a rank, in a step: a multiple of 1/4 in [-4, 4].
float number(std::uint64_t seed, std::size_t rank, std::size_t step, std::size_t i) {
  std::mt19937_64 random(seed * 1'000'003 + rank * 1009 + step * 101 + i);
  return static_cast<float>(static_cast<int>(random() % 33) - 16) / 4;
}
std::vector<float> numbers(std::uint64_t seed, std::size_t rank, std::size_t step, std::int64_t size) {
  std::vector<float> all;
  for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) all.push_back(number(seed, rank, step, i));
  return all;
}
// What the Variable of a rank begins with.
std::vector<float> initial(const RecipeOfRanks& recipe, std::uint64_t seed, std::size_t rank) {
  return numbers(seed + 1, recipe.keeps_equal ? 0 : rank, 0, kVariable);
}
// The row of the table that a rank takes in a step. There is no row 7.
int row(const RecipeOfRanks& recipe, std::uint64_t seed, std::size_t rank, std::size_t step, std::size_t ranks) {
  const bool is_bad = recipe.fails && recipe.failing_step == step && recipe.failing_rank % ranks == rank;
  return is_bad ? 7 : static_cast<int>((seed + rank + step) % kTable.size());
}

// The group of this rank. Groups are made once, for the host and for NCCL.
const Comm& comm_of(Grouping grouping) {
  static std::optional<std::array<Comm, 4>> made[2];
  std::optional<std::array<Comm, 4>>& comms = made[nccl_is_chosen() ? 1 : 0];
  const Comm& all = world();
  if (!comms) comms = {all, all.split(0, -all.rank()), all.split(all.rank() / 2), all.split(all.rank() % 2)};
  return (*comms)[static_cast<std::size_t>(grouping)];
}

// What a recipe does on the rank of this process.
class OneGraph {
 public:
  using Value = graphsink::Value;

  explicit OneGraph(bool is_one_program) : is_one_program_(is_one_program) {}

  std::int64_t ranks() const { return world().size(); }
  static std::int64_t size(const Value& x) { return x.shape().size(); }
  static Value fit(const Value& x, std::int64_t wanted) {
    if (size(x) == wanted) return x;
    return size(x) > wanted ? slice(x, {0}, {wanted}) : pad(x, {0}, {wanted - size(x)}, 0.0);
  }
  static Value negate(const Value& x, bool is_on_cpu) { return neg(x, where(is_on_cpu)); }
  static Value binary(Instruction::Kind kind, const Value& a, const Value& b, bool is_on_cpu) {
    const Placement place = where(is_on_cpu);
    if (kind == Instruction::add) return kept(add(a, b, place));
    if (kind == Instruction::subtract) return kept(sub(a, b, place));
    return kept(kind == Instruction::multiply ? mul(a, b, place) : maximum(a, b, place));
  }
  static Value all_reduced(const Value& x, Grouping grouping, Reduction reduction) {
    return kept(all_reduce(x, comm_of(grouping), {.reduction = reduction}));
  }
  static Value all_gathered(const Value& x, Grouping grouping) { return all_gather(x, comm_of(grouping)); }
  static Value scattered(const Value& x, Grouping grouping, Reduction reduction) {
    return kept(reduce_scatter(x, comm_of(grouping), {.reduction = reduction}));
  }
  static Value broadcasted(const Value& x, Grouping grouping, std::size_t root) {
    const Comm& comm = comm_of(grouping);
    return broadcast(x, comm, static_cast<int>(root % at(comm.size())));
  }
  static Value exchanged(const Value& x, Grouping grouping) { return all_to_all(x, comm_of(grouping)); }
  static Value sent(const Value& x, Grouping grouping, std::uint64_t bits) {
    const Comm& comm = comm_of(grouping);
    return send_receive(x, comm, sources(bits, at(comm.size())));
  }
  std::vector<Value> averaged(const std::vector<Value>& values, Grouping grouping, bool in_one_exchange) const {
    AverageOptions options{.same_program = is_one_program_};
    if (!in_one_exchange) options.bucket_bytes = 1;
    return average(values, comm_of(grouping), options);
  }
  template <class Body>
  static Value branch(const Value& x, const Body& body) {
    const Value largest = all_reduce(first(x), world(), {.reduction = Reduction::max});
    return if_(
        greater(largest, 0.0), [&] { return body(0); }, [&] { return body(1); });
  }
  template <class Body>
  static Value loop(const Value& x, const Body& body) {
    const Value limit = clamp(broadcast(first(x), world()), 0.0, 3.0);
    return while_(
        {x, 0.0}, [&](const Value&, const Value& n) { return less(n, limit); },
        [&](const Value& state, const Value& n) {
          return std::array{body(state), n + 1.0};
        })[0];
  }

 private:
  static Placement where(bool is_on_cpu) { return is_on_cpu ? on_cpu : Placement{}; }
  static Value first(const Value& x) { return reshape(slice(x, {0}, {1}), Shape{}); }
  static Value kept(const Value& x) { return clamp(x, -kLargest, kLargest); }

  bool is_one_program_;
};

// What the steps leave, of one rank.
struct Results {
  std::vector<float> output, variable, records, means;
  friend bool operator==(const Results&, const Results&) = default;
};

Results expected(const RecipeOfRanks& recipe, std::uint64_t seed) {
  const std::size_t ranks = at(world().size()), me = at(world().rank());
  AllRanks maker(ranks);
  AllRanks::Value variable, input;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    variable.push_back(initial(recipe, seed, rank));
    input.push_back(numbers(seed + 2, rank, 0, kInput));
  }
  Results results;
  const std::size_t steps = recipe.fails ? recipe.failing_step : kSteps;
  for (std::size_t step = 0; step < steps; ++step) {
    AllRanks::Value feed, taken;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      feed.push_back(numbers(seed, rank, step, kFeed));
      taken.push_back({kTable[at(row(recipe, seed, rank, step, ranks))]});
    }
    std::vector<AllRanks::Value> values{variable, input, feed, taken};
    follow(recipe.instructions, values, maker);
    results.output = values.back()[me];
    results.records.push_back(values.back()[me][0]);
    results.means.push_back(maker.all_reduced(values.back(), Grouping::all, Reduction::mean)[me][0]);
    variable = AllRanks::fit(updated(recipe, values.back(), maker), kVariable);
  }
  results.variable = variable[me];
  return results;
}

Tensor vector_of(const std::vector<float>& elements) {
  Tensor tensor(f32, {static_cast<std::int64_t>(elements.size())});
  std::ranges::copy(elements, tensor.as<float>().begin());
  return tensor;
}
std::vector<float> floats(const Tensor& tensor) {
  const auto elements = tensor.as<float>();
  return {elements.begin(), elements.end()};
}

// The program of a recipe on this rank.
class Running {
 public:
  Running(const RecipeOfRanks& recipe, std::uint64_t seed, const DeviceId& device)
      : recipe_(recipe), seed_(seed), program_(compile(graph(), {.target = device})) {}

  // `at_once` of kSteps steps are one run.
  Results run(const Mode mode, std::size_t at_once) {
    const std::size_t me = at(world().rank());
    variable_.write(vector_of(initial(recipe_, seed_, me)));
    program_.write(input_, vector_of(numbers(seed_ + 2, me, 0, kInput)));
    bool has_failed = false;
    for (std::size_t first = 0; first < kSteps && !has_failed; first += at_once) {
      write_feeds(first, at_once);
      try {
        program_.run(mode, {.steps = static_cast<std::int64_t>(at_once)});
        program_.sync();
      } catch (const Error& e) {
        has_failed = e.code() == ErrorCode::step_failed;
        EXPECT_TRUE(has_failed) << e.what();
      }
    }
    EXPECT_EQ(has_failed, recipe_.fails);
    Results results;
    if (!has_failed) results.output = floats(program_.output("y"));
    results.variable = floats(variable_.read());
    results.records = program_.records<float>("r");
    results.means = program_.records<float>("mean");
    return results;
  }

 private:
  void write_feeds(std::size_t first, std::size_t steps) {
    const std::size_t me = at(world().rank());
    Tensor feed(f32, {static_cast<std::int64_t>(steps), kFeed}), rows(i32, {static_cast<std::int64_t>(steps), 1});
    for (std::size_t i = 0; i < steps; ++i) {
      std::ranges::copy(numbers(seed_, me, first + i, kFeed), feed.as<float>().begin() + static_cast<long>(i) * kFeed);
      rows.as<std::int32_t>()[i] = row(recipe_, seed_, me, first + i, at(world().size()));
    }
    program_.write(feed_, feed);
    program_.write(row_, rows);
  }

  Graph graph() {
    Graph g;
    input_ = g.input("input", f32, Shape{kInput});
    feed_ = g.feed("feed", f32, Shape{kFeed});
    row_ = g.feed("row", i32, Shape{1});
    std::vector<Value> values{g.value(variable_), input_, feed_, gather(g.constant(vector_of(kTable)), row_)};
    g.output("taken", values.back());  // so that the step fails, whatever the recipe takes
    OneGraph maker(recipe_.is_one_program(at(world().size())));
    follow(recipe_.instructions, values, maker);
    g.output("y", values.back());
    const Value first = reshape(slice(values.back(), {0}, {1}), Shape{});
    g.record("r", first);
    // All ranks agree on a step only where their plans have a collective of the world.
    g.record("mean", all_reduce(first, world(), {.reduction = Reduction::mean}));
    g.assign(variable_, OneGraph::fit(updated(recipe_, values.back(), maker), kVariable));
    return g;
  }

  const RecipeOfRanks& recipe_;
  std::uint64_t seed_;
  Variable variable_{"v", Tensor(f32, {kVariable})};
  Value input_, feed_, row_;
  Program program_;
};

class RandomRanks : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(Devices, RandomRanks, ::testing::ValuesIn(rank_ways()), rank_way_name);

std::pair<std::uint64_t, std::uint64_t> seeds() {
  if (const char* seed = std::getenv("GS_GRAPH_SEED")) return {std::strtoull(seed, nullptr, 10), 1};
  const char* full = std::getenv("GS_FULL");
  if (full != nullptr && std::string(full) == "1") return {1000, 200};
  return {1000, world().size() == 2 ? 20 : 6};  // more ranks than cores take turns, which takes long
}

TEST_P(RandomRanks, AgreeWithTheOracleInEveryMode) {
  const auto [first, count] = seeds();
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const RecipeOfRanks recipe(seed);
    Results wanted = expected(recipe, seed);
    if (recipe.fails) wanted.output.clear();
    Running running(recipe, seed, GetParam().device);
    // First all ranks run in one mode, then each in another one, which they may not with NCCL.
    const std::size_t turns = (GetParam().nccl ? 1 : 2) * std::size(kAllModes);
    for (std::size_t turn = 0; turn < turns; ++turn) {
      const std::size_t shift = turn < std::size(kAllModes) ? 0 : at(world().rank());
      const Mode mode = kAllModes[(turn + shift) % std::size(kAllModes)];
      // The steps are one run, and once, on all ranks, runs of their own.
      for (const std::size_t at_once : {kSteps, kAllModes[turn % std::size(kAllModes)] == sink ? std::size_t{1} : 0}) {
        if (at_once == 0) continue;
        const Results results = running.run(mode, at_once);
        const std::string what = "seed " + std::to_string(seed) + ", " + std::string(to_string(mode)) + ", " +
                                 std::to_string(at_once) + " steps a run";
        EXPECT_EQ(results.output, wanted.output) << what;
        EXPECT_EQ(results.variable, wanted.variable) << what;
        EXPECT_EQ(results.records, wanted.records) << what;
        EXPECT_EQ(results.means, wanted.means) << what;
      }
    }
  }
}

}  // namespace random_test
}  // namespace graphsink::testing
