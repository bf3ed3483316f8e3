// What a plan says of itself as DOT.
#include <gtest/gtest.h>

#include "dot_reader.h"
#include "explain_plans.h"
#include "graphsink/graphsink.h"
#include "ir/plan.h"
#include "test_ops.h"

namespace graphsink::explain_dot_test {
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
using testing::wide_plan;

TEST(ExplainDot, InvariantCopiesOnCuda) {
  expect_golden("invariant_copies_cuda.dot", invariant_copies_plan().explain_dot());
}
TEST(ExplainDot, FurtherDevice) { expect_golden("further_device_cuda.dot", further_device_plan().explain_dot()); }
TEST(ExplainDot, HostOpOnCuda) { expect_golden("host_op_cuda.dot", host_op_plan().explain_dot()); }
TEST(ExplainDot, ScopesOnCuda) { expect_golden("scopes_cuda.dot", testing::scopes_plan().explain_dot()); }
TEST(ExplainDot, ChoiceOnCuda) { expect_golden("choice_cuda.dot", testing::choice_plan().explain_dot()); }
TEST(ExplainDot, LoopWithHostOpOnCuda) { expect_golden("host_loop_cuda.dot", host_loop_plan().explain_dot()); }
TEST(ExplainDot, BranchInLoopOnCuda) { expect_golden("branch_loop_cuda.dot", branch_in_loop_plan().explain_dot()); }

TEST(ExplainDot, HasANodeForEachStepAndEdgesBetweenThem) {
  for (const Plan& plan : plans()) {
    DotGraph dot = read_dot(plan.explain_dot());
    std::vector<json> tasks = tasks_of(plan);
    EXPECT_EQ(dot.nodes.size(), tasks.size() + plan.invariant_copies.size());
    for (const json& task : tasks) {
      std::string name = "task" + std::to_string(task["id"].get<int>());
      ASSERT_TRUE(dot.nodes.count(name)) << name;
      const auto& attributes = dot.nodes.at(name).attributes;
      bool is_small = task["kind"] == "copy";
      bool is_driven = task.contains("node") && task["node"].is_null();
      EXPECT_EQ(attributes.at("fillcolor"), is_small                     ? "white"
                                            : is_driven                  ? "orange"
                                            : task["kind"] != "call"     ? "lightyellow"
                                            : task["device"] == "host"   ? "orange"
                                            : task["device"] == "cuda:1" ? "palegreen"
                                                                         : "lightblue");
      std::string op = task["op"].get<std::string>();
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

TEST(Explain, InvariantCopiesLeadToWhoReadsThem) {
  Plan plan = invariant_copies_plan();
  json root = explain_json_of(plan);
  DotGraph dot = read_dot(plan.explain_dot());
  ASSERT_EQ(root["invariant_copies"].size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const json& copy = root["invariant_copies"][i];
    EXPECT_EQ(copy["bytes"], 1024);
    EXPECT_EQ(copy["direction"], "to_host");
    EXPECT_EQ(copy["source"]["memory"], i == 0 ? "\"table\"" : "input");
    std::set<std::string> readers, seen;
    for (const json& task : flat(root["tasks"]))
      for (const json& input : task.value("inputs", json::array()))
        if (input["buffer"] == copy["destination"]["buffer"])
          readers.insert("task" + std::to_string(task["id"].get<int>()));
    for (const auto& [edge, attributes] : dot.edges)
      if (edge.first == "invariant" + std::to_string(i)) seen.insert(edge.second);
    EXPECT_EQ(readers.size(), 1u);
    EXPECT_EQ(seen, readers);
  }
}

// Whoever reads what another wrote has an edge from it: computed from the JSON, for schedules without control steps.
TEST(ExplainDot, EdgesAreTheDataOfTheSchedule) {
  for (const Plan& plan : {plan_for(small_mlp(), Target::host()), host_op_plan(), wide_plan()}) {
    std::set<std::pair<std::string, std::string>> wanted, seen;
    std::map<int, std::string> writer;
    for (const json& task : schedule_json_of(plan)) {
      std::string name = "task" + std::to_string(task["id"].get<int>());
      bool is_copy = task["kind"] == "copy";
      for (const json& input : is_copy ? json::array({task["source"]}) : task["inputs"])
        if (!input["buffer"].is_null() && writer.count(input["buffer"])) wanted.insert({writer[input["buffer"]], name});
      for (const json& output : is_copy ? json::array({task["destination"]}) : task["outputs"])
        writer[output["buffer"]] = name;
    }
    for (const auto& [edge, attributes] : read_dot(plan.explain_dot()).edges)
      if (!attributes.count("style")) seen.insert(edge);
    EXPECT_EQ(seen, wanted);
  }
}

TEST(ExplainDot, BodiesAreClustersWithTheEdgesOfEveryIteration) {
  Plan plan = branch_in_loop_plan();
  DotGraph dot = read_dot(plan.explain_dot());
  auto task = [&](std::string_view op) { return "task" + std::to_string(id_of(plan, op)); };
  std::string loop = task("while"), branch = task("if"), body = "cluster_" + loop + "_body";
  using Path = std::vector<std::string>;
  EXPECT_EQ(dot.nodes.at(loop).clusters, (Path{"cluster_island0"}));
  EXPECT_EQ(dot.nodes.at(branch).clusters, (Path{"cluster_island0", body}));
  EXPECT_EQ(dot.nodes.at(task("mul")).clusters, (Path{"cluster_island0", body, "cluster_" + branch + "_then"}));
  EXPECT_EQ(dot.nodes.at(task("add")).clusters, (Path{"cluster_island0", body, "cluster_" + branch + "_else"}));
  std::set<std::pair<std::string, std::string>> entries;
  for (const auto& [edge, attributes] : dot.edges)
    if (attributes.count("style") && attributes.at("style") == "dotted") entries.insert(edge);
  std::string condition = "task" + std::to_string(id_of(plan, "while") + 1);
  EXPECT_EQ(entries,
            (std::set{std::pair(loop, condition), std::pair(branch, task("mul")), std::pair(branch, task("add"))}));
  std::vector<json> tasks = tasks_of(plan);
  std::map<int, std::vector<int>> writers;  // per buffer
  for (const json& s : tasks) {
    if (s["kind"] == "copy") writers[s["destination"]["buffer"]].push_back(s["id"]);
    if (s["kind"] != "call") continue;
    for (const json& output : s["outputs"])
      if (!output["buffer"].is_null()) writers[output["buffer"]].push_back(s["id"]);
  }
  auto expect_edges_from_all = [&](int buffer, const std::string& to) {
    EXPECT_EQ(writers[buffer].size(), 2u);
    for (int from : writers[buffer]) EXPECT_TRUE(dot.edges.count({"task" + std::to_string(from), to})) << from << to;
  };
  expect_edges_from_all(tasks[at(id_of(plan, "while"))]["predicate"]["buffer"], loop);
  for (const char* reader : {"mul", "add", "tanh"})  // the state: as it came, and as the last iteration left it
    expect_edges_from_all(tasks[at(id_of(plan, reader))]["inputs"][0]["buffer"], task(reader));
}

TEST(ExplainDot, JoinsWithoutDataAreDashed) {
  Plan plan = wide_plan();
  ASSERT_GT(plan.streams, 1);
  std::map<int, std::string> tails;
  std::set<std::pair<std::string, std::string>> joins, data, dashed;
  for (const json& task : schedule_json_of(plan)) {
    std::string name = "task" + std::to_string(task["id"].get<int>());
    for (int other : task["after"]) joins.insert({tails.at(other), name});
    tails[task["stream"]] = name;
  }
  for (const auto& [edge, attributes] : read_dot(plan.explain_dot()).edges)
    (attributes.count("style") && attributes.at("style") == "dashed" ? dashed : data).insert(edge);
  for (const auto& edge : joins) EXPECT_NE(dashed.count(edge), data.count(edge)) << edge.first << edge.second;
  for (const auto& edge : dashed) EXPECT_TRUE(joins.count(edge));
}

}  // namespace
}  // namespace graphsink::explain_dot_test
