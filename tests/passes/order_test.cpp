// The pass that gives tasks to streams: whatever two tasks share, they run in the order of the schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/at.h"
#include "passes/passes.h"
#include "schedule.h"

namespace graphsink::order_test {
namespace {

// Random copies among few buffers: every kind of conflict between reads and writes.
Plan random_copies(unsigned seed, int tasks, int buffers) {
  std::mt19937 random(seed);
  auto any_buffer = [&] { return static_cast<int>(random() % static_cast<unsigned>(buffers)); };
  Plan plan;
  plan.devices.resize(1);
  plan.buffers.resize(at(buffers));
  plan.sequences.resize(1);
  for (int i = 0; i < tasks; ++i) {
    Task task;
    task.kind = TaskKind::copy;
    task.source = any_buffer();
    task.destination = any_buffer();
    add_task(plan, 0, task);
  }
  return plan;
}

// For each task, which tasks are complete when it starts.
std::vector<std::vector<bool>> happens_before(const Plan& plan) {
  const std::vector<Task> tasks = testing::schedule_of(plan);
  std::vector<std::vector<bool>> before, issued(8, std::vector<bool>(tasks.size(), false));
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    auto& mine = issued[at(tasks[i].stream)];
    for (int other : tasks[i].after)
      for (std::size_t j = 0; j < i; ++j) mine[j] = mine[j] || issued[at(other)][j];
    before.push_back(mine);
    mine[i] = true;
  }
  return before;
}

TEST(Order, TasksThatShareABufferFollowOneAnother) {
  int streams = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Plan plan = random_copies(seed, 60, 24);
    assign_streams(plan);
    streams = std::max(streams, plan.streams);
    auto before = happens_before(plan);
    const std::vector<Task> tasks = testing::schedule_of(plan);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        bool both_read = tasks[i].destination != tasks[j].source && tasks[i].destination != tasks[j].destination &&
                         tasks[i].source != tasks[j].destination;
        ASSERT_TRUE(both_read || before[i][j]) << "task " << i << " does not wait for task " << j;
      }
    }
  }
  EXPECT_GT(streams, 2);
}

Task copy(int source, int destination) {
  Task task;
  task.kind = TaskKind::copy;
  task.source = source;
  task.destination = destination;
  return task;
}

// What the host does in a body keeps its place among what it does outside.
TEST(Order, EffectsInBodiesFollowThoseOutside) {
  const OpDef effect{.name = "effect", .traits = {.host_effect = true}};
  Plan plan;
  plan.devices.resize(1);
  plan.buffers.resize(9);
  plan.nodes.resize(3);
  for (PlanNode& node : plan.nodes) node.op = &effect;
  plan.nodes[0].operands = {4};
  plan.nodes[0].inputs = 1;
  Task first, branch, inner, last;
  first.node = 0;
  branch.kind = TaskKind::branch;
  branch.source = 7;
  branch.bodies = {1};
  inner.node = 1;
  last.node = 2;
  // Two chains behind copy 0: one ends in an effect, the other in a branch that holds one.
  plan.sequences.resize(2);
  for (const Task& task : {copy(0, 1), copy(1, 2), copy(2, 3), copy(3, 4), copy(1, 5), copy(5, 6), copy(6, 7), first,
                           branch, last, copy(0, 8)})
    add_task(plan, 0, task);
  add_task(plan, 1, inner);
  assign_streams(plan);
  EXPECT_EQ(plan.streams, 2);
  auto before = happens_before(plan);
  EXPECT_TRUE(before[8][7]) << "the branch does not wait for the effect before it";
  EXPECT_TRUE(before[9][8]) << "the last effect does not wait for the branch";
}

}  // namespace
}  // namespace graphsink::order_test
