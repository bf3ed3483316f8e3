// Which streams the plan of a step uses at its end, where further devices hold Variables, or ranks agree on the step.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/at.h"
#include "graphsink/cuda.h"
#include "graphsink/graphsink.h"
#include "ir/system_ops.h"
#include "passes/passes.h"
#include "planned_collectives.h"

namespace graphsink::streams_test {
namespace {

// Plans for a number of GPUs that reach each other's memory, or do not.
Plan plan_for(const Graph& g, int devices = 1, bool are_linked = true) {
  std::vector<Target> targets(at(devices), Target::cuda13());
  for (int i = 0; i < devices; ++i) {
    targets[at(i)].id = cuda(i);
    for (int j = 0; are_linked && j < devices; ++j)
      if (j != i) targets[at(i)].peers.push_back(j);
  }
  PlanOptions options{.fuse = false};
  options.further_targets.assign(targets.begin() + 1, targets.end());
  return make_plan(g, targets[0], system_ops(), {}, options);
}

bool is_call(const Plan& plan, int id, std::string_view op) {
  const Task& task = plan.tasks[at(id)];
  return task.kind == TaskKind::call && plan.nodes[at(task.node)].op->name == op;
}

// Two long branches that do not depend on each other, and a Variable that counts.
Graph branches(Placement of_variable) {
  Graph g;
  const Value x = g.input("x", f32, {64});
  for (int branch = 0; branch < 2; ++branch) {
    Value y = x * (branch + 2.0);  // equal branches would be computed once
    for (int i = 0; i < 8; ++i) y = tanh(y);
    g.output("y" + std::to_string(branch), y);
  }
  const Variable count("count", Tensor(f32, {64}), of_variable);
  g.assign(count, g.value(count) + 1.0);
  return g;
}

std::size_t streams_of_branches(const Plan& plan) {
  std::set<int> streams;
  for (int id : plan.sequences[0].tasks)
    if (is_call(plan, id, "tanh")) streams.insert(plan.tasks[at(id)].stream);
  return streams.size();
}

TEST(Streams, ParallelBranchesHaveTheirOwn) { EXPECT_EQ(streams_of_branches(plan_for(branches({}))), 2u); }

TEST(Streams, SoTheyHaveBesideAVariableOnAFurtherDevice) {
  const Graph g = branches(on_device(1));
  for (bool are_linked : {true, false}) EXPECT_EQ(streams_of_branches(plan_for(g, 2, are_linked)), 2u) << are_linked;
}

TEST(Streams, SoTheyHaveWhereRanksAgreeOnTheStep) {
  for (const OpDef* op : {&testing::exchange_op, &testing::exchange_there_op}) {
    Graph g = branches({});
    g.output("z", emit(*op, {g.input("own", f32, {64})})[0]);
    EXPECT_EQ(streams_of_branches(plan_for(g)), 2u) << (op == &testing::exchange_op ? "on the host" : "on the device");
  }
}

// By id: the tasks that are complete when it starts.
std::vector<std::set<int>> complete_before(const Plan& plan) {
  std::vector<std::set<int>> result(plan.tasks.size()), issued(at(plan.streams));
  for (int id : plan.sequences[0].tasks) {
    const Task& task = plan.tasks[at(id)];
    for (const Fork& fork : task.forks) {
      const std::set<int> source = issued[at(fork.source)];
      issued[at(fork.stream)].insert(source.begin(), source.end());
    }
    for (int other : task.after) issued[at(task.stream)].insert(issued[at(other)].begin(), issued[at(other)].end());
    result[at(id)] = issued[at(task.stream)];
    issued[at(task.stream)].insert(id);
  }
  return result;
}

void expect_commits_beside_each_other(const Plan& plan) {
  const std::vector<std::set<int>> complete = complete_before(plan);
  const std::vector<int>& schedule = plan.sequences[0].tasks;
  const Dependencies deps = dependencies(plan);
  std::vector<int> stores, all, told;  // `told`: all but the copies that tell further devices, and the end
  for (int id : schedule) {
    if (is_call(plan, id, "store")) stores.push_back(id);
    if (stores.empty()) all.push_back(id);
    if (is_call(plan, id, "tell_step")) told = all;
  }
  ASSERT_EQ(stores.size(), plan.devices.size());
  ASSERT_FALSE(told.empty());
  for (int store : stores) {
    for (int other : stores) EXPECT_FALSE(complete[at(store)].contains(other)) << store << " waits for " << other;
    for (int before : told) EXPECT_TRUE(complete[at(store)].contains(before)) << store << ", " << before;
    for (int before : deps[at(store)]) EXPECT_TRUE(complete[at(store)].contains(before)) << store << ", " << before;
  }
  EXPECT_EQ(complete[at(schedule.back())], std::set<int>(schedule.begin(), schedule.end() - 1))
      << "the end of the step";
}

TEST(Streams, DevicesCommitBesideEachOther) {
  for (int devices : {2, 3}) {
    for (bool are_linked : {true, false}) {
      SCOPED_TRACE(std::to_string(devices) + (are_linked ? " linked devices" : " devices"));
      Graph g = branches({});
      for (int device = 1; device < devices; ++device) {
        const Variable there("v" + std::to_string(device), Tensor(f32, {64}), on_device(device));
        g.assign(there, g.value(there) + 1.0);
      }
      expect_commits_beside_each_other(plan_for(g, devices, are_linked));
    }
  }
}

}  // namespace
}  // namespace graphsink::streams_test
