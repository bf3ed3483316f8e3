// The passes, without any device.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/at.h"
#include "golden.h"
#include "graphsink/graphsink.h"
#include "ir/system_ops.h"
#include "passes/passes.h"
#include "passes/plan_queries.h"
#include "schedule.h"
#include "test_ops.h"

namespace graphsink::plan_test {
namespace {

using testing::cpu_plus_one;
using testing::expect_golden;
using testing::small_mlp;

const PlanOptions kEachOpAlone{.fuse = false};

Plan plan_for(const Graph& graph, const Target& target, const PlanOptions& options = {}) {
  return make_plan(graph, target, system_ops(), {}, options);
}

int count(const Plan& plan, std::string_view op) {
  int n = 0;
  for (const PlanNode& node : plan.nodes) n += node.op->name == op;
  return n;
}

int count_copies(const Plan& plan) {
  int n = 0;
  for (const Task& task : plan.tasks) n += task.kind == TaskKind::copy;
  return n;
}

// What is known to be complete when a task starts, from stream order and waits alone: the transitive closure.
std::vector<std::vector<bool>> happens_before(const Plan& plan) {
  const std::vector<Task> tasks = testing::schedule_of(plan);
  std::vector<std::vector<bool>> before(tasks.size(), std::vector<bool>(tasks.size(), false));
  std::vector<int> last(8, -1);
  std::vector<std::vector<bool>> seen(8, std::vector<bool>(tasks.size(), false));
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    auto& mine = seen[at(tasks[i].stream)];
    for (int other : tasks[i].after)
      for (std::size_t j = 0; j < tasks.size(); ++j) mine[j] = mine[j] || seen[at(other)][j];
    before[i] = mine;
    mine[i] = true;
  }
  return before;
}

// Every read comes after the write it needs, and two buffers share bytes only if one is finished before the other
// begins.
void check_schedule(const Plan& plan) {
  const std::vector<Task> tasks = testing::schedule_of(plan);
  auto before = happens_before(plan);
  std::vector<int> writer(plan.buffers.size(), -1);
  std::vector<std::vector<int>> users(plan.buffers.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].kind != TaskKind::call) continue;
    const PlanNode& node = plan.nodes[at(tasks[i].node)];
    for (std::size_t k = 0; k < node.operands.size(); ++k) {
      int buffer = node.operands[k];
      if (buffer < 0 || plan.buffers[at(buffer)].storage != Storage::arena) continue;
      if (k < at(node.inputs)) {
        ASSERT_GE(writer[at(buffer)], 0) << "read before any write";
        EXPECT_TRUE(before[i][at(writer[at(buffer)])]) << node.op->name << " does not wait for its operand";
      } else if (writer[at(buffer)] < 0) {
        writer[at(buffer)] = static_cast<int>(i);
      }
      users[at(buffer)].push_back(static_cast<int>(i));
    }
  }
  auto finished_before = [&](int a, int b) {
    return std::all_of(users[at(a)].begin(), users[at(a)].end(), [&](int use) {
      return before[at(writer[at(b)])][at(use)] || use == writer[at(b)];  // == : in place
    });
  };
  for (int a = 0; a < static_cast<int>(plan.buffers.size()); ++a) {
    for (int b = a + 1; b < static_cast<int>(plan.buffers.size()); ++b) {
      if (writer[at(a)] < 0 || writer[at(b)] < 0) continue;
      const Buffer &x = plan.buffers[at(a)], &y = plan.buffers[at(b)];
      bool overlap = x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
      if (overlap) {
        EXPECT_TRUE(finished_before(a, b) || finished_before(b, a)) << "buffers " << a << " and " << b;
      }
    }
  }
}

// A random graph of element-wise ops and sums over values of a few sizes.
Graph random_graph(unsigned seed, int nodes) {
  std::mt19937 random(seed);
  Graph g;
  std::vector<std::vector<Value>> by_size;
  for (std::int64_t n : {64, 256, 1000}) by_size.push_back({tanh(g.feed("x" + std::to_string(n), f32, {n}))});
  for (int i = 0; i < nodes; ++i) {
    auto& values = by_size[random() % by_size.size()];
    std::size_t recent = std::min<std::size_t>(values.size(), 6);
    const Value& a = values[values.size() - 1 - random() % recent];
    const Value& b = values[values.size() - 1 - random() % values.size()];
    values.push_back(random() % 3 ? add(a, b) : relu(a));
  }
  Value total = sum(by_size[0].back()) + sum(by_size[1].back()) + sum(by_size[2].back());
  g.record("total", total);
  return g;
}

TEST(MemoryReport, OfAPlanWithoutADevice) {
  Plan plan = plan_for(small_mlp(), Target::cuda13());
  expect_golden("mlp_memory.txt", to_string(memory_report(plan)));
}

TEST(MemoryReport, SumsAndLargestValues) {
  Graph g;
  Variable w("w", Tensor(TensorType{f32, {100}}));
  Value x = g.feed("x", f32, {1000}), y = g.input("y", f32, {500}), c = g.constant(Tensor(TensorType{f32, {200}}));
  g.output("out", tanh(x));
  g.record("loss", sum(tanh(y)) + sum(c) + sum(g.value(w)));
  MemoryReport report = memory_report(plan_for(g, Target::host(), kEachOpAlone));
  EXPECT_EQ(report.feeds, 4096u);
  EXPECT_EQ(report.inputs, 2048u);
  EXPECT_EQ(report.constants, 1024u);
  EXPECT_EQ(report.variables, 512u);
  EXPECT_EQ(report.records, kRecordCapacity * sizeof(double));
  EXPECT_EQ(report.values, 4096u + 4096 + 2048 + 5 * 256);
  EXPECT_EQ(report.live, 4096u + 4096);  // the slice of x and its tanh
  EXPECT_LE(report.arena, report.live);
  EXPECT_LT(report.arena, report.values);
  ASSERT_EQ(report.largest.size(), 10u);
  std::vector<std::string> names;
  for (const ValueMemory& value : report.largest) names.push_back(value.name);
  names.resize(7);
  EXPECT_EQ(names, (std::vector<std::string>{"feed \"x\"", "slice of feed \"x\"", "tanh", "input \"y\"", "tanh",
                                             "constant", "variable \"w\""}));
  EXPECT_EQ(report.largest[2].type, (TensorType{f32, {1000}}));
  EXPECT_EQ(report.largest[2].bytes, 4096u);
  EXPECT_NE(report.largest[2].where.line(), 0u);
  EXPECT_EQ(report.largest[6].where.line(), 0u);
}

TEST(Plan, UnusedPureNodesAreDropped) {
  Graph g;
  Value x = g.feed("x", f32, {8});
  tanh(x);
  g.record("s", sum(x));
  Plan plan = plan_for(g, Target::host());
  EXPECT_EQ(count(plan, "tanh"), 0);
  EXPECT_EQ(count(plan, "sum"), 1);
}

TEST(Plan, RandomGraphsAreScheduledAndPlacedSafely) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Plan plan = plan_for(random_graph(seed, 120), Target::host(), {.fuse = seed % 4 == 0});
    check_schedule(plan);
    EXPECT_LT(plan.devices[0].arena_bytes, plan.value_bytes);
  }
}

// A stream that waits for another one also knows what that one has waited for.
TEST(Plan, LifetimesKnowAllThatIsCompleteBeforeATask) {
  int over_two_streams = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Plan plan = plan_for(random_graph(seed, 120), Target::host(), kEachOpAlone);
    const std::vector<Task> tasks = testing::schedule_of(plan);
    auto before = happens_before(plan);
    for (const Lifetime& life : lifetimes(plan)) {
      auto i = at(life.defined.begin);
      PerStream complete{};
      for (std::size_t j = 0; j < tasks.size(); ++j) complete[at(tasks[j].stream)] += before[i][j];
      EXPECT_EQ(complete, life.defined.complete) << "task " << i;
      over_two_streams += std::count_if(complete.begin(), complete.end(), [](int n) { return n > 0; }) > 2;
    }
  }
  EXPECT_GT(over_two_streams, 10);
}

// Too many buffers for the quadratic search.
TEST(Plan, LargeGraphsArePlacedSafely) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Plan plan =
        plan_for(random_graph(seed, 3000 + static_cast<int>(seed % 3) * 3000), Target::host(), {.fuse = seed % 4 == 0});
    check_schedule(plan);
    EXPECT_LT(plan.devices[0].arena_bytes, plan.value_bytes);
  }
}

TEST(Plan, IndependentBranchesGetStreamsOfTheirOwn) {
  Graph g;
  Value x = g.feed("x", f32, {64});
  Value total;
  for (int branch = 0; branch < 4; ++branch) {
    Value y = x * (branch + 2.0);  // equal branches would be computed once
    for (int i = 0; i < 8; ++i) y = tanh(y);
    total = total.valid() ? total + y : y;
  }
  g.record("s", sum(total));
  Plan plan = plan_for(g, Target::host(), kEachOpAlone);
  EXPECT_EQ(plan.streams, 4);
  check_schedule(plan);
}

TEST(Plan, ShortBranchesDoNotFork) {
  Graph g;
  Value x = g.feed("x", f32, {64});
  g.record("s", sum(tanh(x) + relu(x) + exp(x)));
  EXPECT_EQ(plan_for(g, Target::host()).streams, 1);
}

TEST(Plan, ArenaStaysCloseToLiveBytes) {
  for (const Graph& g : {small_mlp(), random_graph(7, 300), random_graph(8, 1000)}) {
    Plan plan = plan_for(g, Target::host());
    EXPECT_LE(static_cast<double>(plan.devices[0].arena_bytes), 1.05 * static_cast<double>(live_bytes(plan)));
    EXPECT_GT(plan.devices[0].arena_bytes, 0u);
  }
}

TEST(Plan, InPlaceOpsShareMemory) {
  Graph g;
  Value y = tanh(g.feed("x", f32, {1024}));
  for (int i = 0; i < 10; ++i) y = tanh(y);
  g.record("s", sum(y));
  Plan plan = plan_for(g, Target::host());
  EXPECT_LE(plan.devices[0].arena_bytes, 2u * 4096u + 512u);
}

TEST(Plan, CommitComesLastAndSwapsAreSafe) {
  Graph g;
  Value x = g.feed("x", f32, {4});
  Variable a("a", Tensor(f32, {4})), b("b", Tensor(f32, {4}));
  Value old_a = g.value(a), old_b = g.value(b);
  assign(a, old_b);
  assign(b, old_a);
  g.record("s", sum(x));
  Plan plan = plan_for(g, Target::host());
  EXPECT_EQ(count_copies(plan), 2) << "both old values must be copied before either is overwritten";
  const std::vector<Task> tasks = testing::schedule_of(plan);
  EXPECT_EQ(plan.nodes[at(tasks.back().node)].op->name, system_ops().end_step->name);
  EXPECT_EQ(plan.nodes[at(tasks[tasks.size() - 2].node)].op->name, system_ops().store->name);
}

TEST(Plan, TheCommitCopiesOnlyWhatItOverwritesBeforeItReadsIt) {
  enum class Rate : std::uint8_t { is_not_written, is_written_behind, is_written_before };
  auto copies = [](Rate order) {
    Graph g;
    Variable rate("rate", Tensor({0.5f})), v("v", Tensor({1.0f})), w("w", Tensor({2.0f}));
    Value at_start = g.value(rate), of_v = g.value(v), of_w = g.value(w);
    if (order == Rate::is_written_before) sgd(sum(at_start * at_start), {rate});
    sgd(sum(of_v * of_v), {v}, {.lr = at_start});
    sgd(sum(of_w * of_w), {w}, {.lr = at_start});
    if (order == Rate::is_written_behind) sgd(sum(at_start * at_start), {rate});
    return count_copies(plan_for(g, Target::host()));
  };
  EXPECT_EQ(copies(Rate::is_not_written), 0);
  EXPECT_EQ(copies(Rate::is_written_behind), 0);
  EXPECT_EQ(copies(Rate::is_written_before), 1) << "one for both optimizers";
}

TEST(Plan, ReadAfterAssignSeesTheAssignedValue) {
  Graph g;
  Variable w("w", Tensor({1.0f}));
  Value next = g.value(w) + 1.0;
  assign(w, next);
  Value read = g.value(w);
  EXPECT_EQ(read.node(), next.node());
}

TEST(Plan, CpuOnlyOpOnCudaIsCopyHostNodeCopy) {
  Graph g;
  Value x = g.input("x", f32, {256});
  g.output("y", relu(emit(cpu_plus_one, {tanh(x)})[0]));
  Plan plan = plan_for(g, Target::cuda13());
  EXPECT_EQ(count_copies(plan), 2);
  EXPECT_EQ(plan.islands.size(), 1u);
  EXPECT_TRUE(plan.islands[0].sunk);
  EXPECT_FALSE(plan.loop_over_steps);
  ASSERT_GE(plan.reasons.size(), 1u);
  EXPECT_NE(plan.reasons[0].what.find("cpu_plus_one"), std::string::npos);
  EXPECT_GT(plan.host_arena_bytes, 0u);
  EXPECT_EQ(count_copies(plan_for(g, Target::host())), 0);
}

TEST(Plan, LoopWithHostOpIsDrivenByTheHost) {
  Graph g;
  Value x = g.input("x", f32, {4});
  auto [y] = while_(
      {x}, [](Value s) { return sum(s) < 100.0; }, [](Value s) { return emit(cpu_plus_one, {s})[0]; });
  g.output("y", relu(y));
  Plan plan = plan_for(g, Target::cuda13());
  ASSERT_EQ(plan.islands.size(), 3u);
  EXPECT_TRUE(plan.islands[0].sunk);
  EXPECT_FALSE(plan.islands[1].sunk);
  EXPECT_TRUE(plan.islands[2].sunk);
}

TEST(Plan, OnCpuLabelPlacesAnOp) {
  Graph g;
  Value x = g.input("x", f32, {16});
  g.output("y", add(x, 1.0, on_cpu));
  Plan plan = plan_for(g, Target::cuda13());
  EXPECT_EQ(count_copies(plan), 1) << "constants are in host memory already";
  EXPECT_EQ(plan.invariant_copies.size(), 1u) << "no step changes an input";
  bool on_host = false;
  for (const PlanNode& node : plan.nodes) on_host = on_host || (node.op->name == "add" && node.on_host);
  EXPECT_TRUE(on_host);
}

// Copied from the host in each step, it would come from memory that is not pinned.
TEST(Plan, AViewOfAConstantIsThereOnBothSides) {
  Graph g;
  Value x = g.input("x", f32, {4});
  Value constant = g.constant(Tensor({1.0f, 2.0f, 3.0f, 4.0f})), view = stop_gradient(constant, on_cpu);
  g.output("y", add(relu(x), view, on_device) + tanh(constant));
  g.output("z", emit(testing::cpu_plus_one, {view})[0]);
  const Plan plan = make_plan(g, Target::cuda13(), system_ops());
  EXPECT_EQ(count_copies(plan), 1) << "z, which is back on the device, and not the view: " << plan.explain();
  EXPECT_EQ(memory_report(plan).constants, 256u);
}

TEST(Plan, OpenDimensionsReplan) {
  Graph g;
  Value x = g.input("x", f32, {open(4), 8});
  g.output("y", mean(x, {0}));
  Plan small = plan_for(g, Target::host());
  Plan large = make_plan(g, Target::host(), system_ops(), {{x.node(), Shape{100, 8}}});
  auto input_bytes = [](const Plan& plan) {
    for (const Buffer& b : plan.buffers)
      if (b.storage == Storage::input) return b.bytes;
    return std::size_t{0};
  };
  EXPECT_EQ(input_bytes(small), 4u * 8 * 4);
  EXPECT_EQ(input_bytes(large), 100u * 8 * 4);
}

TEST(Plan, ALongChainNeedsOnePlaceInMemory) {
  // The schedule of a long chain has one step per op and one place in memory for all of them.
  Graph g;
  Value y = g.feed("x", f32, {1});
  for (int i = 0; i < 20000; ++i) y = y * 0.5;
  g.record("y", sum(y));
  Plan plan = plan_for(g, Target::host(), kEachOpAlone);
  EXPECT_EQ(plan.sequences[0].tasks.size(), 20000u + 3u);
  EXPECT_LE(plan.devices[0].arena_bytes, 1024u);
}

}  // namespace
}  // namespace graphsink::plan_test
