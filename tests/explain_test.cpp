// What a plan says of itself: as text, as JSON and as DOT.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "dot_reader.h"
#include "golden.h"
#include "graphsink/graphsink.h"
#include "ir/system_ops.h"
#include "passes/passes.h"
#include "test_ops.h"

namespace graphsink {
namespace {

using nlohmann::json;
using testing::cpu_plus_one;
using testing::DotGraph;
using testing::expect_golden;
using testing::read_dot;
using testing::small_mlp;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

Plan plan_for(const Graph& graph, const Target& target) { return make_plan(graph, target, system_ops()); }

Plan host_op_plan() {
  Graph g;
  Value x = g.input("x", f32, {256});
  g.output("y", relu(emit(cpu_plus_one, {tanh(x)})[0]));
  return plan_for(g, Target::cuda13());
}

Plan host_loop_plan() {
  Graph g;
  Value x = g.input("x", f32, {4});
  auto [y] = while_(
      {x}, [](Value s) { return sum(s) < 100.0; }, [](Value s) { return emit(cpu_plus_one, {s})[0] * 2.0; });
  g.output("y", y);
  return plan_for(g, Target::cuda13());
}

// A table that is never assigned and an input, both read on the host, one of them in a branch.
Plan hoisted_plan() {
  Graph g;
  Value x = g.input("x", f32, {256});
  Variable table("table", Tensor(f32, {4, 64}));
  Value y = emit(cpu_plus_one, {reshape(g.value(table), {256}, on_device)})[0];
  g.output("y", if_(
                    sum(x, {}, false, on_device) < 1.0, [&] { return mul(emit(cpu_plus_one, {x})[0], y, on_device); },
                    [&] { return add(x, y, on_device); }));
  return plan_for(g, Target::cuda13());
}

// A branch between two values in a loop; `x` is read in both.
Plan branch_in_loop_plan() {
  Graph g;
  Value x = g.input("x", f32, {4});
  auto [y] = while_(
      {x}, [](Value s) { return sum(s) < 100.0; },
      [](Value s) {
        return if_(
            sum(s) < 10.0, [&] { return s * 3.0; }, [&] { return s + 1.0; });
      });
  g.output("y", tanh(y));
  return plan_for(g, Target::cuda13());
}

// Four branches of eight ops each.
Plan wide_plan() {
  Graph g;
  Value x = g.feed("x", f32, {64});
  for (int branch = 0; branch < 4; ++branch) {
    Value y = x;
    for (int i = 0; i < 8; ++i) y = tanh(y);
    g.record("s" + std::to_string(branch), sum(y));
  }
  return plan_for(g, Target::cuda13());
}

// Two devices that reach each other's memory, and the host.
Plan further_device_plan() {
  Graph g;
  Value x = g.input("x", f32, {8});
  Variable w("w", Tensor(f32, {8}));
  Value there = tanh(x * w, on_device(1));
  Value here = emit(testing::cpu_plus_one, {there})[0];
  assign(w, add(here, there, on_device));
  Target first = Target::cuda13(), second = Target::cuda13();
  second.id = cuda(1);
  first.peers = {1};
  second.peers = {0};
  return make_plan(g, first, system_ops(), {}, {.further_targets = {second}});
}

std::vector<Plan> plans() {
  return {plan_for(small_mlp(), Target::host()),
          plan_for(small_mlp(), Target::cuda13()),
          host_op_plan(),
          host_loop_plan(),
          hoisted_plan(),
          branch_in_loop_plan(),
          wide_plan(),
          further_device_plan()};
}

// All steps, bodies included, in the order of their numbers.
std::vector<json> flat(const json& steps) {
  std::vector<json> result;
  for (const json& step : steps) {
    result.push_back(step);
    for (const json& body : step.value("bodies", json::array()))
      for (json& inner : flat(body)) result.push_back(std::move(inner));
  }
  return result;
}

json schedule_of(const Plan& plan) { return json::parse(plan.explain_json())["steps"]; }
std::vector<json> steps_of(const Plan& plan) { return flat(schedule_of(plan)); }

int number_of(const Plan& plan, std::string_view op) {
  for (const json& step : steps_of(plan))
    if (step["op"] == op) return step["number"];
  return -1;
}

TEST(ExplainText, MlpOnCpu) { expect_golden("mlp_cpu.txt", plan_for(small_mlp(), Target::host()).explain()); }
TEST(ExplainText, HostOpOnCuda) { expect_golden("host_op_cuda.txt", host_op_plan().explain()); }
TEST(ExplainText, LoopWithHostOpOnCuda) { expect_golden("host_loop_cuda.txt", host_loop_plan().explain()); }
TEST(ExplainText, HoistedCopiesOnCuda) { expect_golden("hoisted_cuda.txt", hoisted_plan().explain()); }
TEST(ExplainJson, HoistedCopiesOnCuda) { expect_golden("hoisted_cuda.json", hoisted_plan().explain_json()); }
TEST(ExplainDot, HoistedCopiesOnCuda) { expect_golden("hoisted_cuda.dot", hoisted_plan().explain_dot()); }
TEST(ExplainJson, HostOpOnCuda) { expect_golden("host_op_cuda.json", host_op_plan().explain_json()); }
TEST(ExplainJson, LoopWithHostOpOnCuda) { expect_golden("host_loop_cuda.json", host_loop_plan().explain_json()); }
TEST(ExplainText, FurtherDevice) { expect_golden("further_device_cuda.txt", further_device_plan().explain()); }
TEST(ExplainJson, FurtherDevice) { expect_golden("further_device_cuda.json", further_device_plan().explain_json()); }
TEST(ExplainDot, FurtherDevice) { expect_golden("further_device_cuda.dot", further_device_plan().explain_dot()); }
TEST(ExplainDot, HostOpOnCuda) { expect_golden("host_op_cuda.dot", host_op_plan().explain_dot()); }

TEST(ExplainDot, BranchInLoopOnCuda) { expect_golden("branch_loop_cuda.dot", branch_in_loop_plan().explain_dot()); }

TEST(ExplainJson, SumsAreThoseOfThePlan) {
  for (const Plan& plan : plans()) {
    json root = json::parse(plan.explain_json());
    EXPECT_EQ(root["device"], to_string(plan.target.id));
    EXPECT_EQ(root["target"], plan.target.name);
    EXPECT_EQ(root["nodes"], plan.nodes.size());
    EXPECT_EQ(root["host_nodes"],
              std::count_if(plan.nodes.begin(), plan.nodes.end(), [](auto& n) { return n.on_host; }));
    EXPECT_EQ(root["streams"], plan.streams);
    EXPECT_EQ(root["loop_over_steps"], plan.loop_over_steps);
    EXPECT_EQ(root["memory"]["arena_bytes"], plan.arena_bytes);
    EXPECT_EQ(root["memory"]["host_arena_bytes"], plan.host_arena_bytes);
    EXPECT_EQ(root["memory"]["hoisted_bytes"], plan.hoisted_bytes);
    EXPECT_EQ(root["memory"]["value_bytes"], plan.value_bytes);
    EXPECT_EQ(root["memory"]["live_bytes"], live_bytes(plan));
    std::size_t in_islands = 0;
    ASSERT_EQ(root["islands"].size(), plan.islands.size());
    for (std::size_t i = 0; i < plan.islands.size(); ++i) {
      EXPECT_EQ(root["islands"][i]["first"], plan.islands[i].first);
      EXPECT_EQ(root["islands"][i]["last"], plan.islands[i].last);
      EXPECT_EQ(root["islands"][i]["sunk"], plan.islands[i].sunk);
      in_islands += root["islands"][i]["nodes"].get<std::size_t>();
    }
    EXPECT_EQ(in_islands, plan.nodes.size());
    ASSERT_EQ(root["reasons"].size(), plan.reasons.size());
    for (std::size_t i = 0; i < plan.reasons.size(); ++i) EXPECT_EQ(root["reasons"][i]["why"], plan.reasons[i].why);
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
  json root = json::parse(plan_for(g, Target::cuda13()).explain_json());
  EXPECT_EQ(root["copies"], (json{{"count", 5},
                                  {"to_host_bytes", 2048},
                                  {"to_device_bytes", 1024},
                                  {"within_device_bytes", 16},
                                  {"between_devices_bytes", 0}}));
  EXPECT_EQ(root["launches_per_step"], 1);
  EXPECT_EQ(root["sinks_whole"], true);
  std::map<std::string, std::size_t> bytes;
  for (const json& step : flat(root["steps"]))
    if (step["kind"] == "copy") bytes[step["direction"]] += step["bytes"].get<std::size_t>();
  EXPECT_EQ(bytes, (std::map<std::string, std::size_t>{{"to_device", 1024}, {"to_host", 2048}, {"within_device", 16}}));
}

TEST(ExplainJson, WhatTheHostDrivesIsNoLaunch) {
  json root = json::parse(host_loop_plan().explain_json());
  EXPECT_EQ(root["launches_per_step"], 2);
  EXPECT_EQ(root["islands"].size(), 3u);
  EXPECT_EQ(root["sinks_whole"], false);
  EXPECT_EQ(root["copies"]["count"], 6);  // those of the body once
}

TEST(ExplainJson, StepsAreThoseOfTheSchedule) {
  for (const Plan& plan : plans()) {
    json root = json::parse(plan.explain_json());
    const auto& steps = plan.sequences[0].steps;
    ASSERT_EQ(root["steps"].size(), steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const json& seen = root["steps"][i];
      EXPECT_EQ(seen["stream"], steps[i].stream);
      EXPECT_EQ(seen["after"], json(steps[i].after));
      EXPECT_EQ(seen.contains("bodies") ? seen["bodies"].size() : 0, steps[i].sequences.size());
      if (steps[i].kind != StepKind::call) continue;
      const PlanNode& node = plan.nodes[at(steps[i].node)];
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
    std::vector<json> all = flat(root["steps"]);
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]["number"], i);
  }
}

TEST(ExplainJson, NamesTheUsersLineAndTheOperandsThatAreNotRead) {
  Graph g;
  Value x = g.input("x", f32, {256}), like = g.input("like", f32, {256, 2});
  int line = __LINE__ + 1;
  Value y = tanh(x);
  g.output("y", reshape_like(broadcast_like(sum(y), like), like));
  for (const json& step : steps_of(plan_for(g, Target::host()))) {
    if (step["op"] == "tanh") {
      EXPECT_EQ(step["where"], "explain_test.cpp:" + std::to_string(line));
    }
    if (step["op"] == "broadcast_like") {
      EXPECT_EQ(step["inputs"][1]["access"], "shape_only");
      EXPECT_TRUE(step["inputs"][1]["memory"].is_null());
    }
    if (step["op"] == "end_step") {
      EXPECT_TRUE(step["where"].is_null());
    }
  }
  for (const json& step : schedule_of(plan_for(small_mlp(), Target::host()))) {
    if (step["op"] != "adamw") continue;
    std::map<std::string, json> access;
    for (const json& input : step["inputs"]) access[input["memory"]] = input["access"];
    EXPECT_EQ(access.at("\"w1\""), "write");
    EXPECT_EQ(access.at("step block"), "read");
  }
}

TEST(ExplainDot, HasANodeForEachStepAndEdgesBetweenThem) {
  for (const Plan& plan : plans()) {
    DotGraph dot = read_dot(plan.explain_dot());
    std::vector<json> steps = steps_of(plan);
    EXPECT_EQ(dot.nodes.size(), steps.size() + plan.hoisted.size());
    for (const json& step : steps) {
      std::string name = "step" + std::to_string(step["number"].get<int>());
      ASSERT_TRUE(dot.nodes.count(name)) << name;
      const auto& attributes = dot.nodes.at(name).attributes;
      bool is_small = step["kind"] == "copy" || step["kind"] == "mark";
      EXPECT_EQ(attributes.at("fillcolor"), is_small                     ? "white"
                                            : step["kind"] != "call"     ? "lightyellow"
                                            : step["device"] == "host"   ? "orange"
                                            : step["device"] == "cuda:1" ? "palegreen"
                                                                         : "lightblue");
      std::string op = step["kind"] == "mark" ? "begins" : step["op"].get<std::string>();
      EXPECT_NE(attributes.at("label").find(op), std::string::npos);
    }
    EXPECT_FALSE(dot.edges.empty());
    for (const auto& [edge, attributes] : dot.edges) {
      EXPECT_TRUE(dot.nodes.count(edge.first)) << edge.first;
      EXPECT_TRUE(dot.nodes.count(edge.second)) << edge.second;
    }
    for (const Reason& reason : plan.reasons)
      EXPECT_NE(dot.attributes.at("label").find(reason.remedy), std::string::npos) << reason.remedy;
  }
}

TEST(Explain, HoistedCopiesLeadToWhoReadsThem) {
  Plan plan = hoisted_plan();
  json root = json::parse(plan.explain_json());
  DotGraph dot = read_dot(plan.explain_dot());
  ASSERT_EQ(root["hoisted"].size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const json& copy = root["hoisted"][i];
    EXPECT_EQ(copy["bytes"], 1024);
    EXPECT_EQ(copy["direction"], "to_host");
    EXPECT_EQ(copy["source"]["memory"], i == 0 ? "\"table\"" : "input");
    std::set<std::string> readers, seen;
    for (const json& step : flat(root["steps"]))
      for (const json& input : step.value("inputs", json::array()))
        if (input["buffer"] == copy["destination"]["buffer"])
          readers.insert("step" + std::to_string(step["number"].get<int>()));
    for (const auto& [edge, attributes] : dot.edges)
      if (edge.first == "hoisted" + std::to_string(i)) seen.insert(edge.second);
    EXPECT_EQ(readers.size(), 1u);
    EXPECT_EQ(seen, readers);
  }
}

// Whoever reads what another wrote has an edge from it: computed from the JSON, for schedules without control steps.
TEST(ExplainDot, EdgesAreTheDataOfTheSchedule) {
  for (const Plan& plan : {plan_for(small_mlp(), Target::host()), host_op_plan(), wide_plan()}) {
    std::set<std::pair<std::string, std::string>> wanted, seen;
    std::map<int, std::string> writer;
    for (const json& step : schedule_of(plan)) {
      std::string name = "step" + std::to_string(step["number"].get<int>());
      bool is_copy = step["kind"] == "copy";
      for (const json& input : is_copy ? json{step["source"]} : step["inputs"])
        if (!input["buffer"].is_null() && writer.count(input["buffer"])) wanted.insert({writer[input["buffer"]], name});
      for (const json& output : is_copy ? json{step["destination"]} : step["outputs"]) writer[output["buffer"]] = name;
    }
    for (const auto& [edge, attributes] : read_dot(plan.explain_dot()).edges)
      if (!attributes.count("style")) seen.insert(edge);
    EXPECT_EQ(seen, wanted);
  }
}

TEST(ExplainDot, BodiesAreClustersWithTheEdgesOfEveryIteration) {
  Plan plan = branch_in_loop_plan();
  DotGraph dot = read_dot(plan.explain_dot());
  auto step = [&](std::string_view op) { return "step" + std::to_string(number_of(plan, op)); };
  std::string loop = step("while"), branch = step("if"), body = "cluster_" + loop + "_body";
  using Path = std::vector<std::string>;
  EXPECT_EQ(dot.nodes.at(loop).clusters, (Path{"cluster_island0"}));
  EXPECT_EQ(dot.nodes.at(branch).clusters, (Path{"cluster_island0", body}));
  EXPECT_EQ(dot.nodes.at(step("mul")).clusters, (Path{"cluster_island0", body, "cluster_" + branch + "_then"}));
  EXPECT_EQ(dot.nodes.at(step("add")).clusters, (Path{"cluster_island0", body, "cluster_" + branch + "_else"}));
  std::set<std::pair<std::string, std::string>> entries;
  for (const auto& [edge, attributes] : dot.edges)
    if (attributes.count("style") && attributes.at("style") == "dotted") entries.insert(edge);
  std::string condition = "step" + std::to_string(number_of(plan, "while") + 1);
  EXPECT_EQ(entries,
            (std::set{std::pair(loop, condition), std::pair(branch, step("mul")), std::pair(branch, step("add"))}));
  std::vector<json> steps = steps_of(plan);
  std::map<int, std::vector<int>> writers;  // per buffer, all copies: state and results are written by copies alone
  for (const json& s : steps)
    if (s["kind"] == "copy") writers[s["destination"]["buffer"]].push_back(s["number"]);
  auto expect_edges_from_all = [&](int buffer, const std::string& to) {
    EXPECT_EQ(writers[buffer].size(), 2u);
    for (int from : writers[buffer]) EXPECT_TRUE(dot.edges.count({"step" + std::to_string(from), to})) << from << to;
  };
  expect_edges_from_all(steps[at(number_of(plan, "while"))]["predicate"]["buffer"], loop);
  for (const char* reader : {"mul", "add", "tanh"})  // the state: as it came, and as the last iteration left it
    expect_edges_from_all(steps[at(number_of(plan, reader))]["inputs"][0]["buffer"], step(reader));
}

TEST(ExplainDot, JoinsWithoutDataAreDashed) {
  Plan plan = wide_plan();
  ASSERT_GT(plan.streams, 1);
  std::map<int, std::string> tails;
  std::set<std::pair<std::string, std::string>> joins, data, dashed;
  for (const json& step : schedule_of(plan)) {
    std::string name = "step" + std::to_string(step["number"].get<int>());
    for (int other : step["after"]) joins.insert({tails.at(other), name});
    tails[step["stream"]] = name;
  }
  for (const auto& [edge, attributes] : read_dot(plan.explain_dot()).edges)
    (attributes.count("style") && attributes.at("style") == "dashed" ? dashed : data).insert(edge);
  for (const auto& edge : joins) EXPECT_NE(dashed.count(edge), data.count(edge)) << edge.first << edge.second;
  for (const auto& edge : dashed) EXPECT_TRUE(joins.count(edge));
}

TEST(Explain, BodiesRunOnTheStreamOfTheStepAroundThem) {
  Plan plan = branch_in_loop_plan();
  plan.streams = 4;
  plan.sequences[0].steps[at(number_of(plan, "while"))].stream = 3;
  DotGraph dot = read_dot(plan.explain_dot());
  std::string text = plan.explain();
  for (const json& step : steps_of(plan)) {
    if (step["op"] != "mul" && step["op"] != "if") continue;
    EXPECT_EQ(step["stream"], 3);
    EXPECT_TRUE(std::regex_search(text, std::regex(step["op"].get<std::string>() + " +s3")));
    std::string label = dot.nodes.at("step" + std::to_string(step["number"].get<int>())).attributes.at("label");
    EXPECT_NE(label.find("\ns3"), std::string::npos);
  }
}

const OpDef odd_name{
    .name = "odd \"name\" \\ {->}\n;\xff", .infer = testing::infer_like_first, .cpu = testing::plus_one};

TEST(Explain, NamesMayHoldAnything) {
  Graph g;
  Variable w("w\"\\\n\xc3(", Tensor(f32, {4}));
  g.output("y", emit(odd_name, {g.value(w)})[0]);
  Plan plan = plan_for(g, Target::cuda13());
  json root = json::parse(plan.explain_json());
  std::vector<json> steps = flat(root["steps"]);
  EXPECT_EQ(root["hoisted"][0]["source"]["memory"], "\"w\"\\\n\xef\xbf\xbd(\"");
  EXPECT_EQ(root["reasons"][0]["what"], "odd \"name\" \\ {->}\n;\xef\xbf\xbd runs on the host");
  DotGraph dot = read_dot(plan.explain_dot());
  EXPECT_EQ(dot.nodes.size(), steps.size() + 1);
  EXPECT_EQ(dot.nodes.at("step1").attributes.at("label"),
            "1 odd \"name\" \\ {->}\n;\xff\nf32[4]\nhost, " + steps[1]["where"].get<std::string>());
}

}  // namespace
}  // namespace graphsink
