// What the planner makes of collectives, which only ranks.h has: ops of planned_collectives.h stand for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/at.h"
#include "graphsink/cuda.h"
#include "graphsink/graphsink.h"
#include "ir/agreement.h"
#include "ir/step_state.h"
#include "ir/system_ops.h"
#include "passes/exchanges.h"
#include "passes/passes.h"
#include "passes/plan_queries.h"
#include "planned_collectives.h"
#include "test_ops.h"

namespace graphsink::collective_test {
namespace {

using testing::agree_op, testing::agree_there_op, testing::exchange_op, testing::exchange_there_op;

Value exchange(const Value& x) { return emit(exchange_op, {x})[0]; }

// Two values that do not depend on each other, one of which is exchanged twice, and a Variable that is assigned.
Plan plan_for(const Target& target) {
  Graph g;
  const Value x = g.input("x", f32, {256}), index = g.input("index", i32, {4});
  g.output("rows", gather(tanh(x), index));
  const Variable w("w", Tensor(f32, {256}));
  g.assign(w, exchange(relu(exchange(mul(x, 2.0)))));
  return make_plan(g, target, system_ops(), {}, {});
}

// Each GPU reaches the memory of the other.
Plan plan_for_two_gpus(const Graph& g) {
  Target target = Target::cuda13(), second = Target::cuda13();
  second.id = cuda(1);
  target.peers = {1};
  second.peers = {0};
  return make_plan(g, target, system_ops(), {}, {.further_targets = {second}});
}

// Where a call stands in the schedule of the step; -1: nowhere.
int position(const Plan& plan, std::string_view op) {
  const std::vector<int>& schedule = plan.sequences[0].tasks;
  for (std::size_t i = 0; i < schedule.size(); ++i) {
    const Task& task = plan.tasks[at(schedule[i])];
    if (task.kind == TaskKind::call && plan.nodes[at(task.node)].op->name == op) return static_cast<int>(i);
  }
  return -1;
}

void expect_after_all(const Plan& plan, std::string_view op) {
  const std::vector<int>& schedule = plan.sequences[0].tasks;
  const int place = position(plan, op);
  ASSERT_GE(place, 0) << op;
  std::vector<int> before(schedule.begin(), schedule.begin() + place),
      followed = dependencies(plan)[at(schedule[at(place)])];
  std::sort(before.begin(), before.end());
  EXPECT_EQ(before, followed) << op;
}

TEST(Collective, RanksAgreeOnTheStepAfterAllThatMayFailIt) {
  for (const Target& target : {Target::host(), Target::cuda13()}) {
    const Plan plan = plan_for(target);
    expect_after_all(plan, "agree");
    EXPECT_GT(position(plan, "store"), position(plan, "agree"));
    const int last = std::max({position(plan, "gather"), position(plan, "exchange"), position(plan, "relu")});
    EXPECT_GT(position(plan, "agree"), last);
    const PlanNode& agree = plan.nodes[at(plan.tasks[at(plan.sequences[0].tasks[at(position(plan, "agree"))])].node)];
    const auto& collectives = agree.attrs.as<Agreement>().collectives;
    ASSERT_EQ(collectives.size(), 2u);
    EXPECT_LT(collectives[0].id, collectives[1].id);
    EXPECT_EQ(collectives[0].types, (std::vector<TensorType>{{f32, {256}}, {f32, {256}}}));
    EXPECT_EQ(agree.on_host, target.separate_memory);
  }
}

TEST(Collective, TheHostOfADeviceSeesHowTheStepStands) {
  const Plan plan = plan_for(Target::cuda13());
  expect_after_all(plan, "tell_step");
  EXPECT_GT(position(plan, "agree"), position(plan, "tell_step"));
  EXPECT_GT(position(plan, "check_host"), position(plan, "agree"));
  EXPECT_EQ(position(plan_for(Target::host()), "tell_step"), -1);
}

// A further device commits only what all ranks agreed on.
TEST(Collective, TheRanksAgreeBeforeAFurtherDeviceCommits) {
  Graph g;
  const Variable w("w", Tensor(f32, {256}), on_device(1));
  g.assign(w, exchange(g.input("x", f32, {256})));
  const Plan plan = plan_for_two_gpus(g);
  EXPECT_GT(position(plan, "agree"), position(plan, "check_device"));
  EXPECT_GT(position(plan, "check_host"), position(plan, "agree"));
  EXPECT_GT(position(plan, "store"), position(plan, "check_host"));
  for (const PlanNode& node : plan.nodes) EXPECT_EQ(node.device, node.op->name == "store" ? 1 : 0) << node.op->name;
}

TEST(Collective, DoesNotDrawItsNeighboursToTheHost) {
  const Plan plan = plan_for(Target::cuda13());
  for (const PlanNode& node : plan.nodes)
    EXPECT_EQ(node.on_host, node.op == &exchange_op || node.op == &agree_op) << node.op->name;
}

Plan plan_there(bool has_host_op, const PlanOptions& options = {}) {
  Graph g;
  const Value x = g.input("x", f32, {256}), index = g.input("index", i32, {4});
  g.output("rows", gather(tanh(x), index));
  const Variable w("w", Tensor(f32, {256}));
  const Value first = emit(exchange_there_op, {mul(x, 2.0)})[0];
  g.assign(w, emit(exchange_there_op, {relu(first)})[0]);
  if (has_host_op) g.output("y", emit(testing::cpu_plus_one, {x})[0]);
  return make_plan(g, Target::cuda13(), system_ops(), {}, options);
}

TEST(CollectiveOnADevice, NothingCrossesTheHost) {
  const Plan plan = plan_there(false);
  for (const PlanNode& node : plan.nodes) EXPECT_FALSE(node.on_host) << node.op->name;
  EXPECT_TRUE(sinks_whole(plan));
  EXPECT_FALSE(plan.loop_over_steps);
  EXPECT_EQ(position(plan, "tell_step"), -1);
  EXPECT_EQ(position(plan, "check_host"), -1);
  expect_after_all(plan, "agree");
  EXPECT_EQ(position(plan, "check_ranks"), position(plan, "agree") + 1);
  EXPECT_GT(position(plan, "store"), position(plan, "check_ranks"));
  const Task& check = plan.tasks[at(plan.sequences[0].tasks[at(position(plan, "check_ranks"))])];
  const PlanNode& node = plan.nodes[at(check.node)];
  EXPECT_EQ(node.types, (std::vector<TensorType>{{DType::u8, {4 * static_cast<std::int64_t>(sizeof(StepState))}}}));
}

// Other ranks may have more in such a body, and a collective is captured on all ranks or on none.
TEST(CollectiveOnADevice, IsALaunchWhereItIsAloneInABody) {
  Graph g;
  const Value x = g.input("x", f32, {4});
  const auto alone = [&] { return emit(exchange_there_op, {x})[0]; };
  g.output("y", if_(greater(sum(x), 0.0), alone, [&] { return tanh(x); }));
  const Plan plan = make_plan(g, Target::cuda13(), system_ops(), {}, {});
  int launches = 0;
  for (const Sequence& body : plan.sequences)
    for (const Island& island : body.islands) launches += island.sunk ? 1 : 0;
  EXPECT_EQ(launches, 1) << plan.explain();
}

// The values of a library may not be exchanged in a loop, so that a launch of several steps holds each of them.
TEST(CollectiveOnADevice, UnrollsTheSteps) {
  const std::size_t tasks = plan_there(false).tasks.size();
  for (const auto& [room, steps] :
       {std::pair{0, 1}, std::pair{1, 1}, std::pair{2, 2}, std::pair{7, 4}, std::pair{16, 16}}) {
    const Plan plan = plan_there(false, {.unrolled_nodes = at(room) * tasks});
    EXPECT_EQ(plan.unrolled_steps, steps) << room;
    const auto reason = std::find_if(plan.reasons.begin(), plan.reasons.end(), [](const Reason& each) {
      return each.what == "several steps take several launches";
    });
    EXPECT_EQ(reason != plan.reasons.end(), steps == 1) << room;
    const std::string text = plan.explain({}), json = plan.explain_json({});
    const std::string unrolled =
        "up to " + std::to_string(steps) +
        " steps a launch, unrolled, because collectives of NCCL may not stand in a loop body\n";
    EXPECT_EQ(text.find(unrolled) != std::string::npos, steps > 1) << text;
    EXPECT_NE(json.find("\"unrolled_steps\": " + std::to_string(steps)), std::string::npos) << json;
  }
  EXPECT_GT(plan_there(true).unrolled_steps, 1) << "a host node may be there, too";
  EXPECT_EQ(plan_for(Target::cuda13()).unrolled_steps, 0) << "the host exchanges the values";
  EXPECT_EQ(plan_there(false, {.default_placement = on_cpu}).unrolled_steps, 0);
  EXPECT_EQ(plan_for(Target::cuda13()).explain_json({}).find("unrolled_steps"), std::string::npos);
}

// A backward pass of four layers; the gradients of the last layer are exchanged first. As average() does with gradients
// in buckets, the graph has the collectives behind all of it.
Plan data_parallel_plan(int streams = kMaxStreams) {
  Graph g;
  Value y = g.input("x", f32, {8, 16});
  std::vector<Variable> weights;
  for (int i = 0; i < 4; ++i) {  // x has no gradient
    weights.emplace_back("w" + std::to_string(i), Tensor::full(f32, {16, 16}, 0.1));
    y = tanh(matmul(y, weights.back()));
  }
  std::vector<Value> gradients = grad(sum(y), {weights[0], weights[1], weights[2], weights[3]});
  for (std::size_t i = gradients.size(); i-- > 0;) {
    const Value flat = concat({reshape(gradients[i], {256}), reshape(gradients[i], {256})}, 0);
    gradients[i] = reshape(slice(emit(exchange_there_op, {flat})[0], {0}, {256}), {16, 16});
  }
  apply(SgdOptions{.lr = 0.1}, weights, gradients);
  Target target = Target::cuda13();
  target.max_streams = streams;
  return make_plan(g, target, system_ops(), {}, {});
}

// By id: the tasks that it must follow, directly or not.
std::vector<std::vector<bool>> all_before(const Plan& plan) {
  const Dependencies deps = dependencies(plan);
  std::vector<std::vector<bool>> result(plan.tasks.size(), std::vector<bool>(plan.tasks.size()));
  for (int id : plan.sequences[0].tasks) {
    for (int d : deps[at(id)]) {
      result[at(id)][at(d)] = true;
      for (std::size_t i = 0; i < result.size(); ++i) result[at(id)][i] = result[at(id)][i] || result[at(d)][i];
    }
  }
  return result;
}

std::string_view op_of(const Plan& plan, int id) {
  const Task& task = plan.tasks[at(id)];
  return task.kind == TaskKind::call ? plan.nodes[at(task.node)].op->name : "copy";
}

TEST(CollectiveOnADevice, RunsBesideTheBackwardPassOfTheLayersBefore) {
  const Plan plan = data_parallel_plan();
  const std::vector<Beside> exchanges = beside_exchanges(plan);
  ASSERT_EQ(exchanges.size(), 4u);
  const std::vector<std::vector<bool>> before = all_before(plan);
  const int stream = plan.tasks[at(exchanges[0].exchange)].stream;
  EXPECT_NE(stream, 0);
  std::size_t products = 6;  // of three layers: a gradient of the weights and one of the input, but for that of x
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(plan.tasks[at(exchanges[i].exchange)].stream, stream) << i;
    std::size_t found = 0;
    for (int other : exchanges[i].tasks) {
      EXPECT_FALSE(before[at(exchanges[i].exchange)][at(other)]) << op_of(plan, other);
      EXPECT_FALSE(before[at(other)][at(exchanges[i].exchange)]) << op_of(plan, other);
      found += op_of(plan, other).starts_with("matmul") ? 1 : 0;
    }
    EXPECT_GE(found + 1, products) << i;
    EXPECT_TRUE(i == 0 || before[at(exchanges[i].exchange)][at(exchanges[i - 1].exchange)]) << "one order";
    products -= std::min<std::size_t>(products, 2);
  }
  for (int id : plan.sequences[0].tasks) {
    const Task& task = plan.tasks[at(id)];
    EXPECT_EQ(task.stream == stream, op_of(plan, id) == "exchange") << op_of(plan, id);
    const bool waits = std::find(task.after.begin(), task.after.end(), stream) != task.after.end();
    EXPECT_FALSE(waits && op_of(plan, id).starts_with("matmul"));
  }
  const std::string text = plan.explain({});
  EXPECT_NE(text.find("4 collectives on the device: 3 can run beside others, exchange #"), std::string::npos) << text;
}

TEST(CollectiveOnADevice, HasNoStreamOfItsOwnWhereNothingCanRunBesideIt) {
  Graph g;
  const Value x = g.input("x", f32, {256});
  g.output("y", emit(exchange_there_op, {mul(emit(exchange_there_op, {mul(x, 2.0)})[0], 3.0)})[0]);
  const Plan inline_plan = make_plan(g, Target::cuda13(), system_ops(), {}, {});
  EXPECT_EQ(inline_plan.streams, 1);
  EXPECT_NE(inline_plan.explain({}).find("2 collectives on the device: nothing can run beside them\n"),
            std::string::npos)
      << inline_plan.explain({});
  for (const Beside& each : beside_exchanges(data_parallel_plan(1))) EXPECT_TRUE(each.tasks.empty());
  EXPECT_EQ(data_parallel_plan(1).streams, 1);
}

// Values that a collective still reads on its stream share no memory with what runs meanwhile.
TEST(CollectiveOnADevice, KeepsItsMemoryWhileOthersRun) {
  const Plan plan = data_parallel_plan();
  for (const Beside& each : beside_exchanges(plan)) {
    const Touched mine = touched(plan, plan.tasks[at(each.exchange)]);
    std::vector<int> used = mine.reads;
    used.insert(used.end(), mine.writes.begin(), mine.writes.end());
    for (int other : each.tasks) {
      for (int written : touched(plan, plan.tasks[at(other)]).writes) {
        const Buffer& b = plan.buffers[at(written)];
        for (int buffer : used) {
          const Buffer& a = plan.buffers[at(buffer)];
          if (a.storage != Storage::arena || b.storage != Storage::arena) continue;
          EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset) << op_of(plan, other);
        }
      }
    }
  }
}

// The other ranks hear of a failed host op, too.
TEST(CollectiveOnADevice, TheRanksAgreeOnWhatFailedOnTheHost) {
  const Plan plan = plan_there(true);
  expect_after_all(plan, "check_host");
  expect_after_all(plan, "agree");
  EXPECT_GT(position(plan, "agree"), position(plan, "check_host"));
}

TEST(CollectiveOnADevice, MayBePlacedOnTheHostByDefault) {
  const Plan plan = plan_there(false, {.default_placement = on_cpu});
  for (const PlanNode& node : plan.nodes) {
    const bool is_collective = node.op == &exchange_there_op || node.op == &agree_there_op;
    EXPECT_TRUE(!is_collective || node.on_host) << node.op->name;
  }
  EXPECT_EQ(position(plan, "check_ranks"), -1);
  EXPECT_GT(position(plan, "agree"), position(plan, "tell_step"));
}

TEST(CollectiveOnADevice, IsNotBesideWorkOnAFurtherDevice) {
  Graph g;
  const Variable w("w", Tensor(f32, {256}), on_device(1));
  g.assign(w, emit(exchange_there_op, {g.input("x", f32, {256})})[0]);
  try {
    plan_for_two_gpus(g);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(e.problem().find("the step has work on cuda:1 beside cuda:0"), std::string::npos) << e.what();
  }
}

TEST(CollectiveOnADevice, IsNotInAStepWithOneOnTheHost) {
  Graph g;
  const Value x = g.input("x", f32, {256});
  g.output("y", exchange(emit(exchange_there_op, {x})[0]));
  try {
    make_plan(g, Target::cuda13(), system_ops(), {}, {});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(e.problem().find("it exchanges values on the host, and exchange (collective_test.cpp:"),
              std::string::npos)
        << e.what();
  }
}

TEST(ErrorOfRank, KeepsRankReasonAndIndex) {
  for (const std::int64_t index : {std::int64_t{0}, std::int64_t{7}, std::int64_t{-9}, std::int64_t{1} << 38}) {
    const ErrorOfRank why = unpacked(packed({300, StepError::index, index}));
    EXPECT_EQ(why.rank, 300);
    EXPECT_EQ(why.error, StepError::index);
    EXPECT_EQ(why.index, index);
  }
  EXPECT_EQ(to_string(StepError::other_rank, packed({2, StepError::index, -9})),
            "the step failed on rank 2: index -9 lies outside the axis");
  EXPECT_EQ(to_string(StepError::other_rank, packed({1, StepError::unknown, 0})),
            "the step failed on rank 1: an op failed");
}

TEST(StopOfRank, NamesWhereItHeld) {
  EXPECT_EQ(to_string(StepError::other_stop, stop_of_rank(2, false)),
            "the condition of stop_when() held on rank 2, and not on this one");
  EXPECT_EQ(to_string(StepError::other_stop, stop_of_rank(0, true)),
            "the condition of stop_when() held on this rank, and not on rank 0");
}

TEST(StepOfRank, NamesBoth) {
  EXPECT_EQ(to_string(StepError::other_step, step_of_rank(3, 15)), "rank 3 is at step 15, and this one is not");
}

// What the ranks compare has to be known when they do, whoever reads it.
TEST(Collective, RanksAreToldOfAStopBeforeTheyAgree) {
  for (const OpDef* op : {&exchange_op, &exchange_there_op}) {
    for (const Target& target : {Target::host(), Target::cuda13()}) {
      Graph g;
      const Value x = g.input("x", f32, {256});
      g.output("y", emit(*op, {x})[0]);
      g.stop_when(greater(sum(x), 1.0));
      const Plan plan = make_plan(g, target, system_ops(), {}, {});
      const int mark = position(plan, "mark_stop"), tell = position(plan, "tell_step");
      EXPECT_GT(mark, position(plan, "greater"));
      EXPECT_GT(position(plan, "agree"), mark);
      EXPECT_TRUE(tell < 0 || tell > mark);
      expect_after_all(plan, tell >= 0 ? "tell_step" : "agree");
    }
  }
  EXPECT_EQ(position(plan_there(false), "mark_stop"), -1);
}

TEST(Collective, NobodyAgreesWithoutOne) {
  Graph g;
  const Value x = g.input("x", f32, {256});
  g.output("y", emit(testing::cpu_plus_one, {x})[0]);
  const Plan plan = make_plan(g, Target::cuda13(), system_ops(), {}, {});
  EXPECT_EQ(position(plan, "agree"), -1);
  EXPECT_EQ(position(plan, "tell_step"), -1);
}

}  // namespace
}  // namespace graphsink::collective_test
