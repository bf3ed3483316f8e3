// What becomes of the bodies of loops and branches that the host drives: launches, and what is issued between them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/at.h"
#include "graphsink/graphsink.h"
#include "ir/system_ops.h"
#include "passes/passes.h"
#include "plan_ops.h"

namespace graphsink::body_islands_test {
namespace {

using testing::cpu_plus_one;

Value on_host(const Value& v) { return emit(cpu_plus_one, {v})[0]; }
Value waits(const Value& v) { return emit(testing::planned_waits, {v})[0]; }

// The plan of a loop with this body: f32 [4].
template <class Body>
Plan plan_of_loop(const Body& body, bool has_conditional_nodes = true) {
  Graph g;
  Value x = g.input("x", f32, {4});
  g.output("y", while_(
                    {x}, [](Value s) { return sum(s) < 100.0; }, body)[0]);
  Target target = Target::cuda13();
  target.conditional_nodes = has_conditional_nodes;
  return make_plan(g, target, system_ops(), {}, {.fuse = false});
}

std::vector<const Task*> tasks_of_kind(const Plan& plan, TaskKind kind) {
  std::vector<const Task*> found;
  for (const Task& task : plan.tasks)
    if (task.kind == kind) found.push_back(&task);
  return found;
}

const Sequence& body_of(const Plan& plan, const Task& task, std::size_t which = 0) {
  return plan.sequences[at(task.bodies[which])];
}

std::string name_of(const Plan& plan, int id) {
  const Task& task = plan.tasks[at(id)];
  return task.kind == TaskKind::call ? std::string(plan.nodes[at(task.node)].op->name) : "";
}

// The islands together are the tasks of the body, in its order, and neighbours differ.
void expect_islands_of(const Sequence& body) {
  std::vector<int> tasks;
  for (std::size_t i = 0; i < body.islands.size(); ++i) {
    const Island& island = body.islands[i];
    ASSERT_FALSE(island.tasks.empty());
    tasks.insert(tasks.end(), island.tasks.begin(), island.tasks.end());
    EXPECT_TRUE(i == 0 || island.sunk != body.islands[i - 1].sunk);
  }
  EXPECT_EQ(tasks, body.tasks);
  EXPECT_TRUE(std::is_sorted(tasks.begin(), tasks.end()));
}

TEST(BodyIslands, AnOpOnTheHostIsAHostNodeOfTheLaunch) {
  const Plan plan = plan_of_loop([](Value s) { return tanh(on_host(s * 2.0)); });
  const Task& loop = *tasks_of_kind(plan, TaskKind::loop)[0];
  EXPECT_GE(plan.controls[at(loop.control)].reason, 0);
  const Sequence& body = body_of(plan, loop);
  expect_islands_of(body);
  ASSERT_EQ(body.islands.size(), 1u) << plan.explain();
  EXPECT_TRUE(body.islands[0].sunk);
}

TEST(BodyIslands, AConditionalNodeHasNone) {
  const Plan plan = plan_of_loop([](Value s) { return tanh(s) + 1.0; });
  EXPECT_LT(plan.controls[at(tasks_of_kind(plan, TaskKind::loop)[0]->control)].reason, 0);
  for (const Sequence& sequence : plan.sequences) EXPECT_TRUE(sequence.islands.empty());
}

TEST(BodyIslands, WithoutConditionalNodesTheBodyIsALaunch) {
  const Plan plan = plan_of_loop([](Value s) { return tanh(s) + 1.0; }, false);
  const Sequence& body = body_of(plan, *tasks_of_kind(plan, TaskKind::loop)[0]);
  expect_islands_of(body);
  EXPECT_EQ(body.islands.size(), 1u);
}

// The body is put into an order with the fewest launches: b does not need what waits.
TEST(BodyIslands, WhatCannotBeCapturedIsIssuedBetweenAsFewAsPossible) {
  const Plan plan = plan_of_loop([](Value s) {
    Value a = waits(tanh(s) * 0.5), b = exp(tanh(s) * 0.25);
    return waits(a * 2.0) + b + waits(a + 1.0);
  });
  const Sequence& body = body_of(plan, *tasks_of_kind(plan, TaskKind::loop)[0]);
  expect_islands_of(body);
  ASSERT_EQ(body.islands.size(), 5u) << plan.explain();
  EXPECT_TRUE(body.islands[0].sunk);
  ASSERT_EQ(body.islands[1].tasks.size(), 1u);
  EXPECT_EQ(name_of(plan, body.islands[1].tasks[0]), "waits");
  EXPECT_EQ(body.islands[3].tasks.size(), 2u) << "the other two, one after the other";
  // Each task comes behind what it depends on.
  const Dependencies deps = dependencies(plan, tasks_of_kind(plan, TaskKind::loop)[0]->bodies[0]);
  for (int id : body.tasks)
    for (int before : deps[at(id)]) EXPECT_LT(before, id);
  EXPECT_EQ(std::count_if(plan.reasons.begin(), plan.reasons.end(),
                          [](const Reason& r) { return r.what == "waits is issued by the host"; }),
            3);
}

// A node is one call for the host, and so is a launch of it.
TEST(BodyIslands, ASingleNodeIsNoLaunch) {
  const Plan plan = plan_of_loop([](Value s) {
    return if_(
        sum(s) > 10.0, [&] { return waits(s); }, [&] { return s; });
  });
  const Task& branch = *tasks_of_kind(plan, TaskKind::branch)[0];
  EXPECT_GE(plan.controls[at(branch.control)].reason, 0);
  EXPECT_TRUE(body_of(plan, branch, 0).islands.empty()) << "an op that waits, and a copy";
  EXPECT_TRUE(body_of(plan, branch, 1).islands.empty()) << "a copy";
  expect_islands_of(body_of(plan, *tasks_of_kind(plan, TaskKind::loop)[0]));
}

TEST(BodyIslands, ALoopThatCanBeAConditionalNodeIsALaunch) {
  const Plan plan = plan_of_loop([](Value s) {
    Value t = waits(s);
    while_(
        {t}, [](Value u) { return sum(u) < 50.0; }, [](Value u) { return u * 2.0; });
    return waits(while_(
        {t}, [](Value u) { return sum(u) < 60.0; }, [](Value u) { return u * 3.0; })[0]);
  });
  int nodes = 0, driven = 0;
  for (const Task* loop : tasks_of_kind(plan, TaskKind::loop))
    ++(plan.controls[at(loop->control)].reason < 0 ? nodes : driven);
  EXPECT_EQ(nodes, 1) << plan.explain();
  EXPECT_EQ(driven, 1);
}

// What the host drives in a body that it drives is divided likewise, and says its own reason.
TEST(BodyIslands, BodiesInBodiesAreDividedToo) {
  const Plan plan = plan_of_loop([](Value s) {
    Value inner = while_(
        {s * 0.5}, [](Value t) { return sum(t) < 10.0; }, [](Value t) { return waits(tanh(t) * 2.0) + t; })[0];
    return inner * 2.0;
  });
  const std::vector<const Task*> loops = tasks_of_kind(plan, TaskKind::loop);
  ASSERT_EQ(loops.size(), 2u);
  for (const Task* loop : loops) {
    expect_islands_of(body_of(plan, *loop));
    ASSERT_EQ(body_of(plan, *loop).islands.size(), 3u) << plan.explain();
    EXPECT_FALSE(body_of(plan, *loop).islands[1].sunk);
  }
  EXPECT_NE(plan.controls[at(loops[0]->control)].reason, plan.controls[at(loops[1]->control)].reason);
  EXPECT_NE(plan.explain().find("each iteration: "), std::string::npos);
  EXPECT_NE(plan.explain().find(", 4 launches\n"), std::string::npos) << "two, and those of the inner loop";
}

}  // namespace
}  // namespace graphsink::body_islands_test
