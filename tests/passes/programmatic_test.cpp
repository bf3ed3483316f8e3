// The pass that decides which kernels captured graphs launch programmatically.
#include <gtest/gtest.h>

#include "base/at.h"
#include "explain_plans.h"
#include "graphsink/graphsink.h"
#include "ir/plan.h"
#include "ir/system_ops.h"
#include "plan_ops.h"
#include "test_ops.h"

namespace graphsink::programmatic_test {
namespace {

using testing::expect_golden;
using testing::explain_json_of;
using testing::flat;
using testing::json;
using testing::planned_waits;

using Names = std::vector<std::string>;

Plan programmatic_plan(const Graph& graph, const Target& target = Target::cuda13()) {
  return make_plan(graph, target, system_ops(), {}, {.programmatic_launch = true});
}

// The ops whose first kernel is launched so, in the order of the tasks.
Names launched_so(const Plan& plan) {
  Names names;
  for (const json& task : flat(explain_json_of(plan)["tasks"]))
    if (task.value("programmatic", false)) names.push_back(task["op"]);
  EXPECT_EQ(names.size(), plan.programmatic.nodes);
  return names;
}

Graph chain() {
  Graph g;
  g.output("y", relu(tanh(g.input("x", f32, {8}))));
  return g;
}

// How the first node with this op is launched.
ProgrammaticLaunch how(const Plan& plan, std::string_view op) {
  for (const PlanNode& node : plan.nodes)
    if (node.op->name == op) return node.programmatic;
  ADD_FAILURE() << "no " << op;
  return ProgrammaticLaunch::none;
}

TEST(Programmatic, AKernelBehindAnother) {
  const Plan plan = programmatic_plan(chain());
  EXPECT_EQ(launched_so(plan), (Names{"tanh", "relu", "end_step"}));
  // What is in front of the first is not known.
  const PlanNode& first = plan.nodes[at(plan.tasks[at(plan.sequences[0].tasks[0])].node)];
  EXPECT_EQ(first.op->name, "begin_step");
  EXPECT_EQ(first.programmatic, ProgrammaticLaunch::all_but_first);
}

TEST(Programmatic, OffByDefault) {
  const Plan plan = make_plan(chain(), Target::cuda13(), system_ops());
  EXPECT_EQ(launched_so(plan), Names{});
  EXPECT_FALSE(plan.programmatic.is_on);
  for (const PlanNode& node : plan.nodes) EXPECT_EQ(node.programmatic, ProgrammaticLaunch::none) << node.op->name;
}

TEST(Programmatic, ATargetThatCannotSaysSo) {
  const Plan plan = programmatic_plan(chain(), Target::cuda13(89));
  EXPECT_EQ(launched_so(plan), Names{});
  for (const PlanNode& node : plan.nodes) EXPECT_EQ(node.programmatic, ProgrammaticLaunch::none) << node.op->name;
  EXPECT_NE(plan.explain().find("no kernel is launched programmatically: it takes compute capability 9.0"),
            std::string::npos)
      << plan.explain();
  EXPECT_TRUE(explain_json_of(plan)["programmatic_launch"]["obstacle"].is_string());
}

TEST(Programmatic, TheCpuIgnoresIt) {
  const Plan plan = programmatic_plan(chain(), Target::host());
  EXPECT_EQ(launched_so(plan), Names{});
  EXPECT_EQ(plan.programmatic.obstacle, "");
}

// A product is the work of a library.
TEST(Programmatic, NotBehindALibraryNorTheLibraryItself) {
  Graph g;
  g.output("y", relu(tanh(matmul(tanh(g.input("x", f32, {8, 8})), g.input("w", f32, {8, 8})))));
  const Plan plan = programmatic_plan(g);
  EXPECT_EQ(launched_so(plan), (Names{"tanh", "end_step"}));
  EXPECT_EQ(how(plan, "matmul_tanh"), ProgrammaticLaunch::none);
  EXPECT_EQ(how(plan, "relu"), ProgrammaticLaunch::all_but_first);
}

TEST(Programmatic, NotBehindACopyNorOnTheHost) {
  Graph g;
  Value x = g.input("x", f32, {8});
  g.output("y", relu(exp(tanh(x), on_cpu)));
  const Plan plan = programmatic_plan(g);
  // Around exp values are copied to the host and back.
  EXPECT_EQ(launched_so(plan), (Names{"tanh", "check_host", "end_step"}));
  EXPECT_EQ(how(plan, "exp"), ProgrammaticLaunch::none);
  EXPECT_EQ(how(plan, "relu"), ProgrammaticLaunch::all_but_first);
}

// Such a node may launch nothing.
TEST(Programmatic, NotBehindANodeWithoutElements) {
  Graph g;
  Value x = g.input("x", f32, {0, 8});
  g.output("y", tanh(sum(exp(x), {0})));
  const Plan plan = programmatic_plan(g);
  EXPECT_EQ(how(plan, "exp"), ProgrammaticLaunch::none);
  EXPECT_EQ(how(plan, "sum"), ProgrammaticLaunch::none);
  EXPECT_EQ(how(plan, "tanh"), ProgrammaticLaunch::all_but_first);
  EXPECT_EQ(launched_so(plan), Names{"end_step"});
}

TEST(Programmatic, NotWhereItWaitsForAnotherStream) {
  Graph g;
  Value x = g.input("x", f32, {64});
  std::vector<Value> sums;
  for (int branch = 0; branch < 2; ++branch) {
    Value y = x * (branch + 2.0);  // equal branches would be computed once
    for (int i = 0; i < 8; ++i) y = tanh(y);
    sums.push_back(y);
  }
  g.output("y", sums[0] + sums[1]);
  const Plan plan = programmatic_plan(g);
  ASSERT_EQ(plan.streams, 2);
  std::array<int, 2> on_stream{};
  bool joins = false;
  for (const Task& task : plan.tasks_of(0)) {
    const PlanNode& node = plan.nodes[at(task.node)];
    const bool is_first = on_stream[at(task.stream)]++ == 0;
    joins = joins || (!task.after.empty() && !is_first);
    EXPECT_EQ(node.programmatic == ProgrammaticLaunch::all, !is_first && task.after.empty()) << node.op->name;
  }
  EXPECT_TRUE(joins);
}

// A wait that a stream makes early is one, too.
TEST(Programmatic, NotBehindAnEarlyWait) {
  Plan plan = programmatic_plan(chain());
  const int relu_task = plan.sequences[0].tasks[2];
  for (PlanNode& node : plan.nodes) node.programmatic = ProgrammaticLaunch::none;
  plan.programmatic = {};
  plan.tasks[at(relu_task)].forks.push_back({.stream = 0, .source = 1, .task = relu_task});
  choose_programmatic_launches(plan);
  EXPECT_EQ(launched_so(plan), (Names{"tanh", "end_step"}));
}

// The first kernel of a body, and what comes behind a loop or branch, are launched as usual.
TEST(Programmatic, InTheBodiesOfConditionalNodes) {
  Graph g;
  Value x = g.input("x", f32, {4});
  auto [y] = while_(
      {x}, [](Value s) { return sum(s) < 100.0; }, [](Value s) { return tanh(exp(s)); });
  g.output("y", relu(y));
  const Plan plan = programmatic_plan(g);
  EXPECT_EQ(how(plan, "exp"), ProgrammaticLaunch::all_but_first);
  EXPECT_EQ(how(plan, "tanh"), ProgrammaticLaunch::all);
  EXPECT_EQ(how(plan, "relu"), ProgrammaticLaunch::all_but_first);
}

// The host drives this loop. What a launch can hold of its body is captured, and only that is launched so.
TEST(Programmatic, InBodiesThatTheHostDrives) {
  Graph g;
  Value x = g.input("x", f32, {4});
  auto [y] = while_(
      {x}, [](Value s) { return sum(s) < 100.0; },
      [](Value s) { return relu(sqrt(emit(planned_waits, {tanh(exp(s))})[0])); });
  g.output("y", y);
  const Plan plan = programmatic_plan(g);
  EXPECT_EQ(how(plan, "exp"), ProgrammaticLaunch::all_but_first);
  EXPECT_EQ(how(plan, "tanh"), ProgrammaticLaunch::all);
  EXPECT_EQ(how(plan, "waits"), ProgrammaticLaunch::none);
  EXPECT_EQ(how(plan, "sqrt"), ProgrammaticLaunch::all_but_first);
  EXPECT_EQ(how(plan, "relu"), ProgrammaticLaunch::all);
}

TEST(Programmatic, Explained) {
  Graph g;
  Value x = g.input("x", f32, {8, 8});
  auto [y] = while_(
      {tanh(matmul(x, x))}, [](Value s) { return sum(s) < 100.0; }, [](Value s) { return s * 3.0; });
  g.output("y", relu(y));
  expect_golden("programmatic_cuda.txt", programmatic_plan(g).explain());
}

}  // namespace
}  // namespace graphsink::programmatic_test
