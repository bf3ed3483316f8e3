// What a plan says of itself as text and as JSON, and where these and DOT agree.
#include <gtest/gtest.h>

#include <cmath>

#include "dot_reader.h"
#include "explain_plans.h"
#include "graphsink/graphsink.h"
#include "passes/plan_queries.h"
#include "schedule.h"
#include "test_ops.h"

namespace graphsink::explain_test {
namespace {

using testing::branch_in_loop_plan;
using testing::DotGraph;
using testing::expect_golden;
using testing::explain_json_of;
using testing::flat;
using testing::further_device_plan;
using testing::host_loop_plan;
using testing::host_op_plan;
using testing::id_of;
using testing::invariant_copies_plan;
using testing::json;
using testing::plan_for;
using testing::plans;
using testing::read_dot;
using testing::schedule_json_of;
using testing::small_mlp;
using testing::tasks_of;

TEST(ExplainText, MlpOnCpu) { expect_golden("mlp_cpu.txt", plan_for(small_mlp(), Target::host()).explain()); }
TEST(ExplainText, HostOpOnCuda) { expect_golden("host_op_cuda.txt", host_op_plan().explain()); }
TEST(ExplainText, LoopWithHostOpOnCuda) { expect_golden("host_loop_cuda.txt", host_loop_plan().explain()); }
TEST(ExplainText, BranchInALoopOnCuda) { expect_golden("branch_loop_cuda.txt", branch_in_loop_plan().explain()); }
TEST(ExplainJson, BranchInALoopOnCuda) { expect_golden("branch_loop_cuda.json", branch_in_loop_plan().explain_json()); }
TEST(ExplainJson, ChoiceOnCuda) { expect_golden("choice_cuda.json", testing::choice_plan().explain_json()); }
TEST(ExplainText, UnrolledLoopOnCuda) { expect_golden("unrolled_cuda.txt", testing::unrolled_plan().explain()); }
TEST(ExplainText, InvariantCopiesOnCuda) {
  expect_golden("invariant_copies_cuda.txt", invariant_copies_plan().explain());
}
TEST(ExplainJson, InvariantCopiesOnCuda) {
  expect_golden("invariant_copies_cuda.json", invariant_copies_plan().explain_json());
}
TEST(ExplainJson, HostOpOnCuda) { expect_golden("host_op_cuda.json", host_op_plan().explain_json()); }
TEST(ExplainJson, LoopWithHostOpOnCuda) { expect_golden("host_loop_cuda.json", host_loop_plan().explain_json()); }
TEST(ExplainText, ScopesOnCuda) { expect_golden("scopes_cuda.txt", testing::scopes_plan().explain()); }
TEST(ExplainJson, ScopesOnCuda) { expect_golden("scopes_cuda.json", testing::scopes_plan().explain_json()); }
TEST(ExplainText, FurtherDevice) { expect_golden("further_device_cuda.txt", further_device_plan().explain()); }
TEST(ExplainJson, FurtherDevice) { expect_golden("further_device_cuda.json", further_device_plan().explain_json()); }

TEST(ExplainJson, SumsAreThoseOfThePlan) {
  for (const Plan& plan : plans()) {
    json root = explain_json_of(plan);
    EXPECT_EQ(root["device"], to_string(plan.target().id));
    EXPECT_EQ(root["target"], plan.target().name);
    EXPECT_EQ(root["nodes"], plan.nodes.size());
    EXPECT_EQ(root["host_nodes"],
              std::count_if(plan.nodes.begin(), plan.nodes.end(), [](auto& n) { return n.on_host; }));
    EXPECT_EQ(root["streams"], plan.streams);
    EXPECT_EQ(root["loop_over_steps"], plan.loop_over_steps);
    EXPECT_EQ(root["memory"]["arena_bytes"], plan.devices[0].arena_bytes);
    EXPECT_EQ(root["memory"]["host_arena_bytes"], plan.host_arena_bytes);
    EXPECT_EQ(root["memory"]["invariant_bytes"], plan.host_invariant_bytes);
    EXPECT_EQ(root["memory"]["value_bytes"], plan.value_bytes);
    EXPECT_EQ(root["memory"]["live_bytes"], live_bytes(plan));
    std::size_t in_islands = 0;
    ASSERT_EQ(root["islands"].size(), plan.islands.size());
    for (std::size_t i = 0; i < plan.islands.size(); ++i) {
      EXPECT_EQ(root["islands"][i]["tasks"], json(plan.islands[i].tasks));
      EXPECT_EQ(root["islands"][i]["sunk"], plan.islands[i].sunk);
      in_islands += root["islands"][i]["nodes"].get<std::size_t>();
    }
    EXPECT_EQ(in_islands, plan.nodes.size());
    ASSERT_EQ(root["reasons"].size(), plan.reasons.size());
    for (std::size_t i = 0; i < plan.reasons.size(); ++i) EXPECT_EQ(root["reasons"][i]["why"], plan.reasons[i].why);
  }
}

TEST(PlanSummary, IsWhatTheJsonSays) {
  PlanFacts facts;
  facts.reasons.push_back(
      {.what = "the launch was not captured", .where = {}, .why = "the device refused", .cost = "", .remedy = ""});
  for (const Plan& plan : plans()) {
    json root = json::parse(plan.explain_json(facts));
    const PlanSummary seen = summary(plan, facts);
    EXPECT_EQ(root["sinks_whole"], seen.sinks_whole);
    EXPECT_EQ(root["loop_over_steps"], seen.loop_over_steps);
    EXPECT_EQ(root["launches_per_step"], seen.launches_per_step);
    EXPECT_EQ(root["islands"].size(), seen.islands);
    EXPECT_EQ(root["nodes"], seen.nodes);
    EXPECT_EQ(root["host_nodes"], seen.host_nodes);
    EXPECT_EQ(root["streams"], seen.streams);
    EXPECT_EQ(root["memory"]["arena_bytes"], seen.arena_bytes);
    EXPECT_EQ(root["memory"]["live_bytes"], seen.live_bytes);
    ASSERT_EQ(root["reasons"].size(), seen.reasons.size());
    for (std::size_t i = 0; i < seen.reasons.size(); ++i) EXPECT_EQ(root["reasons"][i]["what"], seen.reasons[i].what);
  }
}

TEST(ExplainJson, CopiesHaveADirection) {
  Graph g;
  Value x = g.input("x", f32, {256});
  Variable w("w", Tensor(f32, {2})), v("v", Tensor(f32, {2}));
  g.output("y", relu(add(tanh(x, on_device), exp(x, on_device), on_cpu)));
  Value old_w = g.value(w);
  assign(w, g.value(v));
  assign(v, old_w);
  json root = explain_json_of(plan_for(g, Target::cuda13()));
  EXPECT_EQ(root["copies"], (json{{"count", 5},
                                  {"to_host_bytes", 2048},
                                  {"to_device_bytes", 1024},
                                  {"within_device_bytes", 16},
                                  {"between_devices_bytes", 0}}));
  EXPECT_EQ(root["launches_per_step"], 1);
  EXPECT_EQ(root["sinks_whole"], true);
  std::map<std::string, std::size_t> bytes;
  for (const json& task : flat(root["tasks"]))
    if (task["kind"] == "copy") bytes[task["direction"]] += task["bytes"].get<std::size_t>();
  EXPECT_EQ(bytes, (std::map<std::string, std::size_t>{{"to_device", 1024}, {"to_host", 2048}, {"within_device", 16}}));
}

TEST(ExplainJson, WhatTheHostDrivesIsNoLaunch) {
  json root = explain_json_of(host_loop_plan());
  EXPECT_EQ(root["launches_per_step"], 2);
  EXPECT_EQ(root["islands"].size(), 3u);
  EXPECT_EQ(root["sinks_whole"], false);
  EXPECT_EQ(root["copies"]["count"], 3);  // those of the body once
}

// Of each loop and branch: the node that it is, or why the host drives it, and what one run of each body costs.
TEST(ExplainJson, ControlFlowSaysWhoDrivesItAndWhatItCosts) {
  int nodes = 0, driven = 0;
  for (const Plan& plan : plans()) {
    const json root = explain_json_of(plan);
    const std::string text = plan.explain(), dot = plan.explain_dot();
    for (const json& task : flat(root["tasks"])) {
      if (!task.contains("bodies")) continue;
      const std::string kind = task["kind"];
      const bool is_driven = task["node"].is_null();
      ++(is_driven ? driven : nodes);
      EXPECT_EQ(is_driven, task["reason"].is_number());
      EXPECT_FALSE(task["where"].is_null());
      if (is_driven) {
        const json& reason = root["reasons"][task["reason"].get<std::size_t>()];
        EXPECT_NE(text.find("the host drives it: " + reason["why"].get<std::string>()), std::string::npos) << text;
        EXPECT_NE(dot.find(kind + "\\ndriven by the host"), std::string::npos) << dot;
        EXPECT_FALSE(reason["remedy"].get<std::string>().empty());
      } else {
        EXPECT_EQ(task["node"], kind == "while" ? "WHILE" : kind == "if" ? "IF" : "SWITCH");
        EXPECT_NE(text.find(task["node"].get<std::string>() + " node"), std::string::npos) << text;
        EXPECT_NE(dot.find(kind + "\\n" + task["node"].get<std::string>() + " node"), std::string::npos) << dot;
      }
      ASSERT_EQ(task["costs"].size(), task["bodies"].size());
      for (std::size_t i = 0; i < task["bodies"].size(); ++i) {
        std::size_t host_ops = 0, copies = 0, to_host = 0;
        for (const json& inner : flat(task["bodies"][i])) {
          host_ops += inner["device"] == "host";
          copies += inner["kind"] == "copy";
          if (inner["kind"] == "copy" && inner["direction"] == "to_host") to_host += inner["bytes"].get<std::size_t>();
        }
        EXPECT_EQ(task["costs"][i]["host_ops"], host_ops);
        EXPECT_EQ(task["costs"][i]["copies"], copies);
        EXPECT_EQ(task["costs"][i]["to_host_bytes"], to_host);
      }
    }
  }
  EXPECT_GE(nodes, 5);
  EXPECT_GE(driven, 2);
}

// In a loop that the host drives, a branch that can be an IF node is one, in a launch of the body.
TEST(Explain, ABranchInALoopThatTheHostDrivesIsANodeOfItsLaunch) {
  Graph g;
  Value x = g.input("x", f32, {4});
  auto [y] = while_(
      {x}, [](Value s) { return sum(s) < 100.0; },
      [](Value s) {
        Value inner = if_(
            sum(s) < 10.0, [&] { return s * 3.0; }, [&] { return s + 1.0; });
        return emit(testing::cpu_plus_one, {inner})[0];
      });
  g.output("y", y);
  const Plan plan = plan_for(g, Target::cuda13());
  EXPECT_NE(plan.explain().find(", 1 launch\n"), std::string::npos) << plan.explain();
  int seen = 0;
  for (const json& task : tasks_of(plan)) {
    if (task["kind"] == "while") {
      EXPECT_TRUE(task["node"].is_null());
      EXPECT_EQ(task["costs"][0]["launches"], 1);
      ASSERT_EQ(task["islands"][0].size(), 1u);
      EXPECT_EQ(task["islands"][0][0]["sunk"], true);
    } else if (task["kind"] == "if") {
      EXPECT_EQ(task["node"], "IF");
      EXPECT_TRUE(task["reason"].is_null());
      EXPECT_EQ(task["costs"][0]["launches"], 0);
      ++seen;
    }
  }
  EXPECT_EQ(seen, 1);
}

TEST(ExplainJson, TasksAreThoseOfTheSchedule) {
  for (const Plan& plan : plans()) {
    json root = explain_json_of(plan);
    const std::vector<Task> tasks = testing::schedule_of(plan);
    ASSERT_EQ(root["tasks"].size(), tasks.size());
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const json& seen = root["tasks"][i];
      EXPECT_EQ(seen["stream"], tasks[i].stream);
      EXPECT_EQ(seen["after"], json(tasks[i].after));
      EXPECT_EQ(seen.contains("bodies") ? seen["bodies"].size() : 0, tasks[i].bodies.size());
      if (tasks[i].kind != TaskKind::call) continue;
      const PlanNode& node = plan.nodes[at(tasks[i].node)];
      EXPECT_EQ(seen["op"], node.op->name);
      EXPECT_EQ(seen["device"], node.on_host ? "host" : device_name(plan, node.device));
      ASSERT_EQ(seen["inputs"].size(), at(node.inputs));
      ASSERT_EQ(seen["inputs"].size() + seen["outputs"].size(), node.operands.size());
      for (std::size_t k = 0; k < node.operands.size(); ++k) {
        bool is_input = k < at(node.inputs);
        const json& operand = is_input ? seen["inputs"][k] : seen["outputs"][k - at(node.inputs)];
        EXPECT_EQ(operand["type"], to_string(node.types[k]));
        EXPECT_EQ(operand["buffer"], node.operands[k] < 0 ? json() : json(node.operands[k]));
        EXPECT_EQ(operand.contains("access"), is_input);
      }
    }
    std::vector<json> all = flat(root["tasks"]);
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]["id"], i);
  }
}

TEST(ExplainJson, NamesTheUsersLineAndTheOperandsThatAreNotRead) {
  Graph g;
  Value x = g.input("x", f32, {256}), like = g.input("like", f32, {256, 2});
  int line = __LINE__ + 1;
  Value y = tanh(x);
  g.output("y", reshape_like(broadcast_like(sum(y), like), like));
  for (const json& task : tasks_of(plan_for(g, Target::host()))) {
    if (task["op"] == "tanh") {
      EXPECT_EQ(task["where"], "explain_test.cpp:" + std::to_string(line));
    }
    if (task["op"] == "broadcast_like") {
      EXPECT_EQ(task["inputs"][1]["access"], "shape_only");
      EXPECT_TRUE(task["inputs"][1]["memory"].is_null());
    }
    if (task["op"] == "end_step") {
      EXPECT_TRUE(task["where"].is_null());
    }
  }
  for (const json& task : schedule_json_of(plan_for(small_mlp(), Target::host()))) {
    if (task["op"] != "adamw") continue;
    std::map<std::string, json> access;
    for (const json& input : task["inputs"]) access[input["memory"]] = input["access"];
    EXPECT_EQ(access.at("\"w1\""), "write");
    EXPECT_EQ(access.at("step block"), "read");
  }
}

struct Taps {
  std::vector<int> at;
  double limit;
  Conv2dOptions options;
  static auto fields(auto& s) { return std::tie("at", s.at, "limit", s.limit, "options", s.options); }
};
const OpDef filter_op{.name = "filter", .infer = testing::infer_like_first, .bodies = {testing::plus_one}};

TEST(ExplainJson, PrintsTheAttributesThatAnOpNames) {
  Graph g;
  Value x = g.input("x", f32, {4, 4});
  g.output("s", softmax(x, 0));
  g.output("c", sum(x, {0}, {.keep_axes = true}));
  g.output("t", emit(filter_op, {x}, Taps{std::vector<int>(17, 3), -INFINITY, {.groups = 2}})[0]);
  std::map<std::string, json> attributes;
  for (const json& task : tasks_of(plan_for(g, Target::host())))
    if (task.contains("attributes")) attributes[task["op"]] = task["attributes"];
  json list = std::vector<int>(16, 3);
  list.push_back("17 in all");
  const json pair_of_ones = {1, 1};
  EXPECT_EQ(attributes, (std::map<std::string, json>{{"softmax", {{"axis", 0}, {"is_log", false}}},
                                                     {"sum", {{"axes", {0}}, {"keep_axes", true}, {"is_mean", false}}},
                                                     {"filter",
                                                      {{"at", list},
                                                       {"limit", "-inf"},
                                                       {"options",
                                                        {{"stride", pair_of_ones},
                                                         {"padding", json::array({0, 0})},
                                                         {"dilation", pair_of_ones},
                                                         {"groups", 2}}}}}}));
}

TEST(Explain, ChoiceOnCuda) {
  Plan plan = testing::choice_plan();
  expect_golden("choice_cuda.txt", plan.explain());
  for (const json& task : tasks_of(plan)) {
    if (task["kind"] != "switch") continue;
    EXPECT_EQ(task["bodies"].size(), 3u);
    EXPECT_EQ(task["index"]["buffer"], plan.tasks[at(id_of(plan, "switch"))].source);
  }
}

TEST(Explain, FoundSizeOnCuda) { expect_golden("found_size_cuda.txt", testing::found_size_plan().explain()); }

TEST(Explain, BodiesRunOnTheStreamOfTheStepAroundThem) {
  Plan plan = branch_in_loop_plan();
  plan.streams = 4;
  plan.tasks[at(id_of(plan, "while"))].stream = 3;
  DotGraph dot = read_dot(plan.explain_dot());
  std::string text = plan.explain();
  for (const json& task : tasks_of(plan)) {
    if (task["op"] != "mul" && task["op"] != "if") continue;
    EXPECT_EQ(task["stream"], 3);
    std::string line = text.substr(text.find(" " + task["op"].get<std::string>() + " "));
    EXPECT_NE(line.substr(0, line.find('\n')).find(" s3 "), std::string::npos) << text;
    std::string label = dot.nodes.at("task" + std::to_string(task["id"].get<int>())).attributes.at("label");
    EXPECT_NE(label.find("\ns3"), std::string::npos);
  }
}

const OpDef odd_name{
    .name = "odd \"name\" \\ {->}\n;\xff", .infer = testing::infer_like_first, .bodies = {testing::plus_one}};

TEST(Explain, NamesMayHoldAnything) {
  Graph g;
  Variable w("w\"\\\n\xc3\xa4", Tensor(f32, {4}));
  g.output("y", emit(odd_name, {g.value(w)})[0]);
  Plan plan = plan_for(g, Target::cuda13());
  json root = explain_json_of(plan);
  std::vector<json> tasks = flat(root["tasks"]);
  EXPECT_EQ(root["invariant_copies"][0]["source"]["memory"], "\"w\"\\\n\xc3\xa4\"");
  EXPECT_EQ(root["reasons"][0]["what"], "odd \"name\" \\ {->}\n;\xef\xbf\xbd runs on the host");
  DotGraph dot = read_dot(plan.explain_dot());
  EXPECT_EQ(dot.nodes.size(), tasks.size() + 1);
  EXPECT_EQ(dot.nodes.at("task1").attributes.at("label"),
            "1 odd \"name\" \\ {->}\\n;\\xff\nf32[4]\nhost, " + tasks[1]["where"].get<std::string>());
  // In text, each stays in its line.
  EXPECT_NE(plan.explain().find(" odd \"name\" \\ {->}\\n;\\xff "), std::string::npos) << plan.explain();
  EXPECT_NE(plan.explain().find("note: odd \"name\" \\ {->}\\n;\\xff runs"), std::string::npos) << plan.explain();
  EXPECT_NE(plan.explain().find("\"w\"\\\\n\xc3\xa4\" -> "), std::string::npos) << plan.explain();
  const std::string report = to_string(memory_report(plan));
  EXPECT_NE(report.find("variable \"w\"\\\\n\xc3\xa4\""), std::string::npos) << report;
}

}  // namespace
}  // namespace graphsink::explain_test
