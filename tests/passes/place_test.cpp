// Where nodes run, how many bytes cross, and in how many islands: against every other choice.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "base/at.h"
#include "graphsink/graphsink.h"
#include "ir/system_ops.h"
#include "passes/explain.h"
#include "passes/passes.h"
#include "test_ops.h"

namespace graphsink::place_test {
namespace {

Plan plan_for(const Graph& graph, const PlanOptions& options = {}) {
  return make_plan(graph, Target::cuda13(), system_ops(), {}, options);
}

// Invariant copies included, as if they ran in each step.
std::size_t crossing_bytes(const Plan& plan) {
  TaskCounts counts = count_tasks(plan);
  std::size_t bytes = counts.to_host_bytes + counts.to_device_bytes;
  for (const InvariantCopy& copy : plan.invariant_copies)
    bytes += plan.buffers[static_cast<std::size_t>(copy.source)].bytes;
  return bytes;
}

int host_nodes(const Plan& plan) { return static_cast<int>(count_tasks(plan).host_nodes); }

Value host_only(const Value& x) { return emit(testing::cpu_plus_one, {x})[0]; }

// Only planned: the body never runs.
void no_body(CudaArgs&) {}
const OpDef device_only_op{.name = "device_only", .infer = testing::infer_like_first, .bodies = {no_body}};

bool runs_on_host(const Plan& plan, std::string_view op) {
  for (const PlanNode& node : plan.nodes)
    if (node.op->name == op) return node.on_host;
  ADD_FAILURE() << "no " << op << " in the plan";
  return false;
}

TEST(Place, AnOpBetweenTwoOfTheHostJoinsThem) {
  Graph g;
  Value x = g.input("x", f32, {256});
  g.output("y", host_only(tanh(host_only(relu(x)))));
  Plan plan = plan_for(g);
  EXPECT_TRUE(runs_on_host(plan, "tanh"));
  EXPECT_FALSE(runs_on_host(plan, "relu")) << "both sides of it cost the same: it stays on the device";
  EXPECT_EQ(crossing_bytes(plan), 2 * 1024u);
  EXPECT_NE(plan.explain().find(": its neighbours do, and so fewer bytes cross"), std::string::npos) << plan.explain();
}

TEST(Place, CrossesWhereValuesAreSmall) {
  Graph g;
  Value x = g.input("x", f32, {256});
  g.output("y", tanh(sum(host_only(x))));
  Plan plan = plan_for(g);
  EXPECT_TRUE(runs_on_host(plan, "sum"));
  EXPECT_FALSE(runs_on_host(plan, "tanh"));
  EXPECT_EQ(crossing_bytes(plan), 1024u + 4u);
}

TEST(Place, OneOpOnTheHostDoesNotDrawAModelAfterIt) {
  Graph g;
  Variable w("w", Tensor(f32, {784, 10}));
  g.output("y", matmul(host_only(g.feed("x", f32, {1, 784})), w));
  EXPECT_FALSE(runs_on_host(plan_for(g), "matmul")) << "though w is copied once at most, and the product is small";
}

// On the host the matrix of ones would cross, were it read; on the device, the scalar and the result do.
TEST(Place, AnOperandOfWhichOnlyTheTypeIsUsedDoesNotCross) {
  Graph g;
  Value like = emit(device_only_op, {g.input("x", f64, {256})})[0];
  g.output("like", like);
  g.output("y", host_only(broadcast_like(host_only(g.input("s", f32, {})), like)));
  Plan plan = plan_for(g);
  EXPECT_TRUE(runs_on_host(plan, "broadcast_like"));
}

// If the sum ran on the host, it would have to come back to the device to enter the body.
TEST(Place, ValuesEnterBodiesThroughTheDevice) {
  Graph g;
  Value x = emit(device_only_op, {g.input("x", f32, {256})})[0];
  Value sum = x + host_only(g.input("s", f32, {}));
  g.output("y", if_(
                    g.input("is_used", boolean, {}), [&] { return host_only(sum); },
                    [&] { return g.constant(Tensor(f32, {256})); }));
  EXPECT_FALSE(runs_on_host(plan_for(g), "add"));
}

TEST(Place, PlacementsAndTheProgramsDefaultDecide) {
  Graph g;
  Value x = g.input("x", f32, {256});
  Value between = tanh(host_only(x), on_device);
  g.output("y", host_only(between));
  g.output("z", relu(x, on_cpu));
  g.output("w", exp(x));
  Plan plan = plan_for(g);
  EXPECT_FALSE(runs_on_host(plan, "tanh"));
  EXPECT_TRUE(runs_on_host(plan, "relu"));
  EXPECT_FALSE(runs_on_host(plan, "exp"));
  Plan on_host = plan_for(g, {.default_placement = on_cpu});
  EXPECT_FALSE(runs_on_host(on_host, "tanh"));
  EXPECT_TRUE(runs_on_host(on_host, "exp"));
}

TEST(Place, RefusesPlacementsThatNoBodyCanServe) {
  auto problem_of = [](const std::function<void(Graph&, Value)>& build) -> std::string {
    Graph g;
    build(g, g.input("x", f32, {4}));
    try {
      plan_for(g);
    } catch (const Error& e) {
      return e.op() + ": " + e.problem() + "; " + e.remedy();
    }
    return "";
  };
  EXPECT_EQ(
      problem_of([](Graph& g, Value x) { g.output("y", emit(device_only_op, {x}, {}, on_cpu)[0]); }),
      "device_only: has the placement on_cpu, but no CPU body; give its OpDef a CPU body, or remove the placement");
  EXPECT_EQ(problem_of([](Graph& g, Value x) { g.output("y", emit(testing::cpu_plus_one, {x}, {}, on_device)[0]); }),
            "cpu_plus_one: has the placement on_device, but no body for this device; "
            "give its OpDef a CUDA body, or remove the placement");
}

// --- against every choice there is

constexpr unsigned kRandomGraphs = 1000;

// A small graph of a seed. `placements` decides for its free nodes, in their order, where it is not empty.
struct RandomGraph {
  Graph graph;
  int free_nodes = 0;
};

// No two nodes are equal: simplify() would compute them once where all choices but one would not. Nodes that are not
// free are for the host or the device alone; with `second`, those for the host are for on_device(1) instead.
RandomGraph random_graph(unsigned seed, const std::vector<Placement>& placements = {}, bool second = false) {
  std::mt19937 random(seed);
  auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  RandomGraph result;
  Variable state("state", Tensor(TensorType{f32, {8}}));
  std::vector<Value> values = {result.graph.input("x", f32, {static_cast<std::int64_t>(1 + below(64))}),
                               result.graph.value(state)};
  std::set<std::array<std::size_t, 3>> made;
  std::size_t nodes = 3 + below(8);
  for (std::size_t i = 0; i < nodes; ++i) {
    std::size_t first = below(values.size()), other = below(values.size()), kind = below(10);
    Value x = values[first], y = values[other];
    bool is_joined = kind == 3 || kind == 4;
    std::size_t what = kind < 3 || (second && kind > 6 && kind < 9) ? 0 : is_joined ? 3 : kind == 8 ? 7 : kind;
    if (!made.insert({what, first, is_joined ? other : 0}).second) continue;
    Placement placement;
    bool is_free = kind < 7;
    if (is_free && !placements.empty()) placement = placements[at(result.free_nodes)];
    result.free_nodes += is_free;
    if (kind < 3) values.push_back(tanh(x, placement));
    if (is_joined) values.push_back(concat({Arg(x), Arg(y)}, 0, placement));
    if (kind == 5) values.push_back(slice(x, {0}, {1}, {}, placement));
    if (kind == 6) values.push_back(mul(x, x, placement));
    if (kind == 7 || kind == 8) values.push_back(second ? tanh(x, on_device(1)) : host_only(x));
    if (kind == 9) values.push_back(emit(device_only_op, {x})[0]);
  }
  result.graph.output("last", values.back());
  result.graph.output("any", values[below(values.size())]);
  return result;
}

std::vector<Placement> choice(int free_nodes, unsigned bits, Placement other = on_cpu) {
  std::vector<Placement> placements;
  for (int i = 0; i < free_nodes; ++i) placements.push_back((bits >> i) & 1 ? other : on_device);
  return placements;
}

TEST(Place, CrossesWithTheFewestBytesOfAllChoices) {
  int moved = 0;
  for (unsigned seed = 0; seed < kRandomGraphs; ++seed) {
    RandomGraph random = random_graph(seed);
    Plan plan = plan_for(random.graph);
    std::pair<std::size_t, int> best{SIZE_MAX, 0};  // bytes, then nodes on the host
    for (unsigned bits = 0; bits < 1u << random.free_nodes; ++bits) {
      Plan other = plan_for(random_graph(seed, choice(random.free_nodes, bits)).graph, {.fuse = false});
      best = std::min(best, {crossing_bytes(other), host_nodes(other)});
    }
    ASSERT_EQ(std::pair(crossing_bytes(plan), host_nodes(plan)), best) << "seed " << seed << "\n" << plan.explain();
    Plan default_on_device = plan_for(random.graph, {.default_placement = on_device});
    moved += host_nodes(plan) > host_nodes(default_on_device);
  }
  EXPECT_GT(moved, static_cast<int>(kRandomGraphs / 20)) << "graphs in which it pays to move a node";
}

// Bytes of values that cross between two devices, and nodes on the second.
std::pair<std::size_t, int> between_devices(const Graph& graph) {
  Target first = Target::cuda13(), second = Target::cuda13();
  second.id = cuda(1);
  first.peers = {1};
  second.peers = {0};
  Plan plan = make_plan(graph, first, system_ops(), {}, {.fuse = false, .further_targets = {second}});
  std::size_t bytes = 0;
  auto add = [&](int from, int to) {
    const Buffer& source = plan.buffers[at(from)];
    bool crosses = source.device != plan.buffers[at(to)].device;
    if (crosses && source.storage != Storage::step_block) bytes += source.bytes;
  };
  for (const Task& task : plan.tasks_of(0))
    if (task.kind == TaskKind::copy) add(task.source, task.destination);
  for (const InvariantCopy& copy : plan.invariant_copies) add(copy.source, copy.destination);
  auto nodes = std::count_if(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return n.device > 0; });
  return {bytes, static_cast<int>(nodes)};
}

TEST(Place, CrossesToAFurtherDeviceWithTheFewestBytesOfAllChoices) {
  int moved = 0;
  for (unsigned seed = 0; seed < kRandomGraphs; ++seed) {
    RandomGraph random = random_graph(seed, {}, true);
    std::pair<std::size_t, int> best{SIZE_MAX, 0}, seen = between_devices(random.graph);
    for (unsigned bits = 0; bits < 1u << random.free_nodes; ++bits) {
      std::vector<Placement> placements = choice(random.free_nodes, bits, on_device(1));
      best = std::min(best, between_devices(random_graph(seed, placements, true).graph));
    }
    ASSERT_EQ(seen, best) << "seed " << seed;
    std::vector<Placement> unmoved(static_cast<std::size_t>(random.free_nodes), on_device);
    moved += seen.second > between_devices(random_graph(seed, unmoved, true).graph).second;
  }
  EXPECT_GT(moved, static_cast<int>(kRandomGraphs / 20)) << "graphs in which it pays to move a node";
}

// How many tasks of the schedule come before the commit.
int tasks_before_commit(const Plan& plan) {
  const std::vector<int>& schedule = plan.sequences[0].tasks;
  return static_cast<int>(std::find(schedule.begin(), schedule.end(), first_commit_task(plan)) - schedule.begin());
}

// The least number of runs of tasks of one kind over all orders of the schedule that respect its dependencies.
// `kinds`: by position in the schedule.
int fewest_runs(const Plan& plan, const std::vector<int>& kinds) {
  const std::vector<int>& schedule = plan.sequences[0].tasks;
  std::map<int, int> positions;  // by id
  for (std::size_t i = 0; i < schedule.size(); ++i) positions[schedule[i]] = static_cast<int>(i);
  const Dependencies by_id = dependencies(plan);
  Dependencies deps;
  for (int id : schedule) {
    deps.emplace_back();
    for (int d : by_id[at(id)]) deps.back().push_back(positions.at(d));
  }
  auto count = at(tasks_before_commit(plan));
  std::map<std::pair<unsigned, int>, int> fewest;  // by the tasks that are done and the kind of the last
  std::function<int(unsigned, int)> search = [&](unsigned done, int last) -> int {
    if (done + 1 == 1u << count) return last == kinds.back() ? 0 : 1;  // the commit
    auto [entry, is_new] = fewest.try_emplace({done, last}, INT_MAX);
    if (!is_new) return entry->second;
    int best = INT_MAX;
    for (std::size_t i = 0; i < count; ++i) {
      bool is_ready = std::all_of(deps[i].begin(), deps[i].end(), [&](int d) { return done >> d & 1; });
      if (done >> i & 1 || !is_ready) continue;
      best = std::min(best, search(done | 1u << i, kinds[i]) + (kinds[i] != last));
    }
    return fewest[{done, last}] = best;
  };
  return search(1, kinds[0]) + 1;
}

int runs(const std::vector<int>& kinds) {
  int count = 1;
  for (std::size_t i = 1; i < kinds.size(); ++i) count += kinds[i] != kinds[i - 1];
  return count;
}

// A launch that was divided, so that the host drives something beside its rest, counts once.
int runs(const std::vector<Island>& islands) {
  std::vector<int> kinds;
  for (const Island& island : islands) kinds.push_back(island.sunk);
  return runs(kinds);
}

TEST(Place, SplitsIntoTheFewestSubgraphsOfOneDevice) {
  int most = 0;
  for (unsigned seed = 0; seed < kRandomGraphs; ++seed) {
    Plan plan = plan_for(random_graph(seed).graph, {.fuse = false, .default_placement = on_device});
    if (tasks_before_commit(plan) > 16) continue;
    std::vector<int> kinds;
    for (const Task& task : plan.tasks_of(0)) kinds.push_back(is_on_host(plan, task));
    ASSERT_EQ(runs(kinds), fewest_runs(plan, kinds)) << "seed " << seed << "\n" << plan.explain();
    if (runs(kinds) > 1) {
      EXPECT_EQ(runs(plan.split_islands), runs(kinds)) << "seed " << seed << "\n" << plan.explain();
    }
    most = std::max(most, runs(kinds));
  }
  EXPECT_GE(most, 5);
}

// Loops that the host drives, because of an op in their body, among others.
Graph graph_with_loops(unsigned seed) {
  std::mt19937 random(seed);
  auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  Graph g;
  std::vector<Value> values = {g.input("x", f32, {4})};
  std::size_t nodes = 3 + below(6);
  for (std::size_t i = 0; i < nodes; ++i) {
    Value x = values[below(values.size())], y = values[below(values.size())];
    switch (below(3)) {
      case 0:
        values.push_back(tanh(x));
        break;
      case 1:
        values.push_back(add(x, y));
        break;
      default:
        values.push_back(if_(
            sum(x) < 1.0, [&] { return host_only(y); }, [&] { return y; }));
    }
  }
  Value total = values[0];
  for (std::size_t i = 1; i < values.size(); i += 2) total = add(total, values[i]);
  g.output("y", total);
  return g;
}

TEST(Place, CutsIntoTheFewestIslands) {
  int several = 0, reordered = 0;
  for (unsigned seed = 0; seed < kRandomGraphs; ++seed) {
    Plan plan = plan_for(graph_with_loops(seed), {.fuse = false});
    if (tasks_before_commit(plan) > 20) continue;
    std::vector<int> kinds;
    for (const Island& island : plan.islands) kinds.insert(kinds.end(), island.tasks.size(), island.sunk);
    ASSERT_EQ(runs(plan.islands), fewest_runs(plan, kinds)) << "seed " << seed << plan.explain();
    several += plan.islands.size() >= 3;
    std::vector<int> ids;
    for (const Task& task : plan.tasks_of(0))
      if (task.node >= 0 && plan.nodes[at(task.node)].id >= 0) ids.push_back(plan.nodes[at(task.node)].id);
    reordered += !std::is_sorted(ids.begin(), ids.end());
  }
  EXPECT_GT(several, static_cast<int>(kRandomGraphs / 4));
  EXPECT_GT(reordered, static_cast<int>(kRandomGraphs / 20));
}

}  // namespace
}  // namespace graphsink::place_test
