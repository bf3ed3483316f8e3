// Where the planner cuts around ops that say what a launch cannot hold.
#include <gtest/gtest.h>

#include <string>

#include "graphsink/graphsink.h"
#include "ir/system_ops.h"
#include "passes/passes.h"
#include "plan_ops.h"

namespace graphsink::traits_test {
namespace {

TEST(Traits, AnOpThatTheHostIssuesKeepsToAStreamOfItsDevice) {
  Graph g;
  Value x = g.input("x", f32, {64});
  Value beside = x;  // what the launch before still has to do
  for (int i = 0; i < 8; ++i) beside = tanh(beside, on_device);
  g.output("y", emit(testing::planned_waits, {x}, {}, on_device(1))[0]);
  g.output("beside", beside);
  Target first = Target::cuda13(), second = Target::cuda13();
  second.id = cuda(1);
  Plan plan = make_plan(g, first, system_ops(), {}, {.further_targets = {second}});
  EXPECT_FALSE(sinks_whole(plan)) << plan.explain();
  for (const Task& task : plan.tasks_of(0))
    EXPECT_EQ(plan.stream_devices.at(static_cast<std::size_t>(task.stream)), device_of(plan, task)) << plan.explain();
}

TEST(Traits, ADriverWithoutConditionalNodesIsTheReasonForSeveralLaunches) {
  Graph g;
  g.output("y", tanh(g.input("x", f32, {64})));
  Target old = Target::cuda13();
  old.conditional_nodes = false;
  Plan plan = make_plan(g, old, system_ops());
  EXPECT_FALSE(plan.loop_over_steps);
  ASSERT_EQ(plan.reasons.size(), 1u) << plan.explain();
  EXPECT_EQ(plan.reasons[0].what, "several steps take several launches");
  EXPECT_EQ(plan.reasons[0].why, "this driver has no conditional nodes");
}

TEST(Traits, ABodyThatIsNullIsNone) {
  OpBody::Cuda none = nullptr;
  const OpDef op{.name = "op", .bodies = {none}};
  EXPECT_EQ(body_for(op, DeviceKind::cuda, 90), nullptr);
  EXPECT_EQ(body_for(op, DeviceKind::cpu), nullptr);
  const OpDef without_tiles{.name = "without_tiles", .bodies = {Tiles{}}};
  EXPECT_EQ(body_for(without_tiles, DeviceKind::cpu), nullptr);
}

TEST(Traits, TilesAndPartsAreCpuBodies) {
  const Tiles tiles{[](const BodyArgs&) { return std::int64_t{1}; }, [](const CpuArgs&, std::int64_t, std::int64_t) {}};
  const OutputPart part = [](const CpuArgs&, std::int64_t, std::int64_t, void*) {};
  const OpBody::Cuda cuda = [](CudaArgs&) {};
  const OpDef by_tiles{.name = "by_tiles", .bodies = {cuda, tiles}}, by_part{.name = "by_part", .bodies = {part}};
  for (const OpDef* op : {&by_tiles, &by_part}) {
    ASSERT_EQ(body_for(*op, DeviceKind::cpu), &op->bodies.cpu());
    EXPECT_NE(op->bodies.cpu().tiles.run, nullptr);
  }
  EXPECT_EQ(by_tiles.bodies.cpu().cpu, run_all_tiles);
  EXPECT_EQ(by_part.bodies.cpu().cpu, run_whole_part);
  EXPECT_EQ(by_part.bodies.cpu().part, part);
  EXPECT_EQ(body_for(by_tiles, DeviceKind::cuda, 90)->cuda, cuda);
  EXPECT_EQ(body_for(by_part, DeviceKind::cuda, 90), nullptr);
}

}  // namespace
}  // namespace graphsink::traits_test
