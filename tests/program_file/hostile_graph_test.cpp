// Graphs in files that nobody wrote: each field that is wrong is refused by its name.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "graph_for_files.h"
#include "graphsink/graphsink.h"
#include "memory_of_refusal.h"
#include "resident_bytes.h"
#include "round_trip.h"

namespace graphsink::hostile_graph_test {
namespace {

using nlohmann::json;

constexpr const char* kKey = "graphsink.graph";

class HostileGraph : public ::testing::Test {
 protected:
  void SetUp() override { use(testing::graph_for_files()); }

  // Makes files of this graph from here on.
  void use(const Graph& graph) {
    write_graph(directory_ / "graph", graph);
    checkpoint_ = read_checkpoint(directory_ / "graph");
    form_ = json::parse(checkpoint_.metadata.at(kKey));
  }

  // The number of the first node of an op.
  std::size_t node(const std::string& op) const {
    for (std::size_t i = 0; i < form_["nodes"].size(); ++i)
      if (form_["ops"][form_["nodes"][i]["op"].get<std::size_t>()][0] == op) return i;
    ADD_FAILURE() << "no node of " << op;
    return 0;
  }
  std::string in_node(const std::string& op, const std::string& field) const {
    return "graph, nodes[" + std::to_string(node(op)) + "]" + field;
  }

  // The message for a file with this text in the place of the graph's; empty if it is read.
  std::string message(const std::string& text) {
    Checkpoint changed = checkpoint_;
    changed.metadata[kKey] = text;
    write_checkpoint(directory_ / "changed", changed);
    try {
      (void)read_graph(directory_ / "changed");
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::io) << e.what();
      EXPECT_EQ(e.op(), (directory_ / "changed").string()) << e.what();
      return e.problem();
    }
    return "";
  }
  void expect_refused(const std::string& problem, const std::function<void(json&)>& change) {
    json changed = form_;
    change(changed);
    const std::string seen = message(changed.dump());
    EXPECT_NE(seen.find(problem), std::string::npos) << "expected: " << problem << "\n    seen: " << seen;
  }
  void expect_node_refused(const std::string& op, const std::string& field, const std::string& problem,
                           const std::function<void(json&)>& change) {
    expect_refused(in_node(op, field) + ": " + problem, [&](json& g) { change(g["nodes"][node(op)]); });
  }

  TemporaryDirectory directory_;
  Checkpoint checkpoint_;
  json form_;
};

TEST_F(HostileGraph, TheGraphItselfIsRead) { EXPECT_EQ(message(form_.dump()), ""); }

TEST_F(HostileGraph, Texts) {
  EXPECT_NE(message("").find("is not JSON"), std::string::npos);
  EXPECT_NE(message("[]").find("graph: expected an object, seen a list"), std::string::npos);
  EXPECT_NE(message(std::string(100'000, '[')).find("nested more than"), std::string::npos);
  EXPECT_NE(message("{\"a\":1e999}").find("is not JSON"), std::string::npos);
  Checkpoint without = checkpoint_;
  without.metadata.erase(kKey);
  write_checkpoint(directory_ / "without", without);
  EXPECT_THROW((void)read_graph(directory_ / "without"), Error);
}

TEST_F(HostileGraph, EveryMemberOfTheGraphMustBeThere) {
  for (const auto& item : form_.items()) {
    expect_refused(item.key(), [&](json& g) { g.erase(item.key()); });
    expect_refused(item.key(), [&](json& g) { g[item.key()] = "x"; });
  }
  expect_refused("has an unknown member \"more\"", [](json& g) { g["more"] = 1; });
}

TEST_F(HostileGraph, Versions) {
  expect_refused("graph, format: is version 2, and this library reads up to 1", [](json& g) { g["format"] = 2; });
  expect_refused("graph, format: expected a number from 1", [](json& g) { g["format"] = 0; });
  expect_refused("graph, ops[0]: the op \"nothing\" is not known", [](json& g) { g["ops"][0][0] = "nothing"; });
  expect_refused("has version 7, and the newest that is known is 1", [](json& g) { g["ops"][0][1] = 7; });
  expect_refused("graph, ops[0]: expected a name and a version", [](json& g) { g["ops"][0] = json::array({"add"}); });
}

TEST_F(HostileGraph, Nodes) {
  expect_node_refused("matmul", ".op", "expected a number from 0 to", [](json& n) { n["op"] = 1000; });
  expect_node_refused("matmul", ".op", "expected a whole number, seen 1.5", [](json& n) { n["op"] = 1.5; });
  expect_node_refused("matmul", ".in[0]", "expected a number from 0 to", [](json& n) { n["in"][0] = 100'000; });
  expect_node_refused("matmul", ".in[0]", "expected a number from 0 to", [&](json& n) { n["in"][0] = node("matmul"); });
  expect_node_refused("matmul", ".in[0][1]", "expected a number from 0 to 0", [](json& n) {
    n["in"][0] = json::array({0, 3});
  });
  expect_node_refused("matmul", "", "matmul: takes 2 inputs, was given 1", [](json& n) { n["in"].erase(0); });
  expect_node_refused("matmul", ".out", "the op \"matmul\" makes f32[4, 6]",
                      [](json& n) { n["out"][0] = "f32[4, 7]"; });
  expect_node_refused("matmul", ".region", "expected a number from 0 to", [](json& n) { n["region"] = 1000; });
  expect_node_refused("matmul", ".copy_of", "expected a number from 0 to", [](json& n) { n["copy_of"] = 100'000; });
  expect_node_refused("matmul", ".composition", "", [](json& n) { n["composition"] = 100'000; });
  expect_node_refused("matmul", "", "is inside of no composition", [](json& n) {
    n.erase("composition");
    n["is_inside"] = true;
  });
  expect_node_refused("matmul", ".on", "expected \"cpu\"", [](json& n) { n["on"] = "gpu"; });
  expect_node_refused("matmul", ".on", "expected a number from 0", [](json& n) { n["on"] = -1; });
  expect_node_refused("matmul", ".at[0]", "expected a number from 0 to", [](json& n) { n["at"][0] = 1000; });
  expect_node_refused("matmul", "", "has bodies, and its op has none", [](json& n) { n["bodies"] = json::array(); });
  expect_node_refused("matmul", "", "has an unknown member", [](json& n) { n["more"] = 1; });
  expect_node_refused("matmul", "", "has no operands", [](json& n) { n.erase("in"); });
}

TEST_F(HostileGraph, Attributes) {
  expect_node_refused("slice", "", "has no \"attrs\"", [](json& n) { n.erase("attrs"); });
  expect_node_refused("slice", ".attrs", "has no \"ends\"", [](json& n) { n["attrs"].erase("ends"); });
  expect_node_refused("slice", ".attrs", "has an unknown member \"more\"", [](json& n) { n["attrs"]["more"] = 1; });
  expect_node_refused("slice", ".attrs.begins[0]", "expected a whole number",
                      [](json& n) { n["attrs"]["begins"][0] = "0"; });
  expect_node_refused("slice", ".attrs.begins", "expected a list", [](json& n) { n["attrs"]["begins"] = 0; });
  expect_node_refused("slice", "", "slice: ", [](json& n) { n["attrs"]["begins"] = json::array({0, 0, 0, 0, 0}); });
  expect_node_refused("dropout", ".attrs.probability", "expected a number, or \"0x\"",
                      [](json& n) { n["attrs"]["probability"] = "0xz"; });
  expect_node_refused("dropout", ".attrs.probability", "expected a number, or \"0x\"",
                      [](json& n) { n["attrs"]["probability"] = "0x10000000000000000"; });
  expect_node_refused("dropout", "", "dropout: the probability is",
                      [](json& n) { n["attrs"]["probability"] = "0x7ff8000000000000"; });
  const auto expect_part_refused = [&](const std::string& problem, const std::string& field, std::int64_t number) {
    expect_node_refused("dropout", "", "dropout: " + problem, [&](json& n) {
      n["attrs"]["part"] = {{"first", 0}, {"axis", 1}, {"number", 1}, {"parts", 2}, {"rank_nodes", 0}};
      n["attrs"]["part"][field] = number;
    });
  };
  expect_part_refused("there is no part 2 of 2", "number", 2);
  expect_part_refused("there is no part -1 of 2", "number", -1);
  expect_part_refused("there is no part 1 of 0", "parts", 0);
  expect_part_refused("there is no part 1 of 1", "parts", 1);
  expect_part_refused("RandomPart divides axis 0, which", "axis", 0);
  expect_part_refused("RandomPart divides axis 2, which", "axis", 2);
  expect_part_refused("RandomPart divides axis -9223372036854775808, which", "axis",
                      std::numeric_limits<std::int64_t>::min());
  expect_part_refused("9223372036854775807 parts of", "parts", std::numeric_limits<std::int64_t>::max());
  expect_part_refused("part 9223372036854775807 is beyond the first 2^33", "first",
                      std::numeric_limits<std::int64_t>::max());
  expect_part_refused("part -1 is beyond the first 2^33", "first", -1);
  expect_part_refused("there are -1 nodes of ranks", "rank_nodes", -1);
  expect_node_refused("tanh", ".attrs", "the op \"tanh\" has none", [](json& n) { n["attrs"] = json::object(); });
  expect_node_refused("matmul", ".attrs.out", "expected a dtype", [](json& n) { n["attrs"]["out"] = "f31"; });
}

TEST_F(HostileGraph, Sources) {
  expect_node_refused("input", ".attrs.dims[0]", "expected an open dimension of an input, with a size of its bucket",
                      [](json& n) { n["attrs"]["dims"][0]["size"] = 5; });
  expect_node_refused("input", ".attrs.dims[1]", "expected a size of at least 0",
                      [](json& n) { n["attrs"]["dims"][1]["size"] = -1; });
  expect_node_refused("input", ".attrs.dims[0].bucket", "expected a rule for sizes",
                      [](json& n) { n["attrs"]["dims"][0]["bucket"] = "multiples of 0"; });
  expect_node_refused("input", ".attrs", "says of no input", [](json& n) { n["attrs"]["is_result_size"] = true; });
  expect_refused(
      "feed: the name \"" + form_["nodes"][node("input")]["attrs"]["name"].get<std::string>() + "\" was used",
      [&](json& g) { g["nodes"][node("feed")]["attrs"]["name"] = g["nodes"][node("input")]["attrs"]["name"]; });
  expect_node_refused("input", "", "input: ", [](json& n) {
    for (int i = 0; i < 10; ++i) n["attrs"]["dims"].push_back(n["attrs"]["dims"][1]);
  });
  const auto size_refused = [&](const std::string& problem, const std::function<void(json&)>& change) {
    expect_refused(problem, [&](json& g) {
      for (json& n : g["nodes"])
        if (n.contains("attrs") && n["attrs"].is_object() && n["attrs"].value("size_of", -1) >= 0) change(n["attrs"]);
    });
  };
  size_refused(".attrs.size_of: is no input with an axis 0", [&](json& a) { a["size_of"] = node("variable"); });
  size_refused(".attrs.size_of: is no input with an axis 2", [](json& a) { a["axis"] = 2; });
  size_refused(".attrs.size_of: is no input with an axis -1", [](json& a) { a["axis"] = -1; });
  size_refused(".attrs.size_of: expected a number from 0 to", [](json& a) { a["size_of"] = 100'000; });
  size_refused(".attrs: says of no input", [](json& a) { a["dtype"] = "i64"; });
  expect_node_refused("constant", ".attrs.tensor", "the file has no tensor \"w\"",
                      [](json& n) { n["attrs"]["tensor"] = "w"; });
  expect_node_refused("variable", ".attrs.number", "expected 0, the next of the",
                      [](json& n) { n["attrs"]["number"] = 1; });
  expect_node_refused("constant", "", "is a source, which has no operands", [](json& n) { n["in"] = json::array(); });
  expect_node_refused("step", "", "has attributes", [](json& n) { n["attrs"] = 1; });
  expect_node_refused("parameter", ".attrs.node", "is no value that the loop could begin with",
                      [](json& n) { n["attrs"]["node"] = 100'000; });
  expect_refused("is a source, which is in no body",
                 [&](json& g) { g["nodes"][node("step")]["region"] = g["nodes"][node("switch_")]["bodies"][0]; });
}

TEST_F(HostileGraph, Bodies) {
  expect_node_refused("if_", ".bodies[1]", "is the body of another node",
                      [](json& n) { n["bodies"][1] = n["bodies"][0]; });
  expect_node_refused("if_", ".bodies[0]", "is the body of another node, or the step",
                      [](json& n) { n["bodies"][0] = 0; });
  expect_refused("is the body of no node", [&](json& g) { g["nodes"][node("if_")]["bodies"].erase(1); });
  expect_node_refused("if_", ".in[0]", "is f32[], not one bool", [&](json& n) { n["in"][0] = node("sum"); });
  expect_node_refused("switch_", ".in", "is no number of its 2 bodies that was checked",
                      [&](json& n) { n["in"][0] = node("step"); });
  const std::size_t loop = form_["nodes"][node("while_")]["bodies"][0], then = form_["nodes"][node("if_")]["bodies"][0];
  const std::string in_loop = "graph, regions[" + std::to_string(loop) + "]";
  const auto body_refused = [&](const std::string& problem, const std::function<void(json&)>& change) {
    expect_refused(in_loop + problem, [&](json& g) { change(g["regions"][loop]); });
  };
  body_refused(".parent: expected a number from 0 to", [&](json& r) { r["parent"] = loop; });
  body_refused(": expected", [](json& r) { r["parameters"].erase(0); });
  body_refused(": expected", [](json& r) { r["results"].erase(0); });
  body_refused(".results[0]: ", [&](json& r) { r["results"][0] = r["results"][1]; });
  body_refused(".parameters[0]: is no parameter of this body", [&](json& r) { r["parameters"][0] = node("matmul"); });
  body_refused(".parameters[1]: begins with another value than operand 1",
               [&](json& r) { r["parameters"][1] = r["parameters"][2]; });
  expect_refused(in_loop + ": expected each parameter", [&](json& g) {
    json &operands = g["nodes"][node("while_")]["in"], &parameters = g["regions"][loop]["parameters"];
    operands[1] = operands[2];
    parameters[1] = parameters[2];
  });
  body_refused(".limit: expected a number from 1", [](json& r) { r["limit"] = 0; });
  body_refused(": has a limit on its iterations", [](json& r) { r.erase("counter"); });
  body_refused(".counter: is not the last state", [](json& r) { r["counter"][1] = r["parameters"][0]; });
  body_refused(".stacked[0]: is the stack of a loop without a limit", [](json& r) { r.erase("limit"); });
  body_refused(".stacked[0].place: expected i32[]", [](json& r) { r["stacked"][0]["place"] = r["parameters"][0]; });
  body_refused(".stacked[0]: ", [](json& r) { r["stacked"][0]["more"] = 0; });
  body_refused(".limit: the condition of the loop does not stop it there", [](json& r) { r["limit"] = 3; });
  body_refused(".runs_to_limit: the condition of the loop may stop it before",
               [](json& r) { r["runs_to_limit"] = true; });
  body_refused(".counter[0]: is not what the last state begins with",
               [&](json& r) { r["counter"][0] = form_["nodes"][r["counter"][2].get<std::size_t>()]["in"][1]; });
  body_refused(".counter[2]: is not the number of the iteration and 1",
               [](json& r) { r["counter"][2] = r["results"][4] = r["counter"][1]; });
  const std::size_t zero = form_["regions"][loop]["counter"][0];
  Tensor& number = checkpoint_.tensors.at(form_["nodes"][zero]["attrs"]["tensor"].get<std::string>());
  const Tensor kept = std::exchange(number, Tensor::scalar<std::int32_t>(1));
  body_refused(".counter[0]: is not the number 0", [](json&) {});
  number = kept;
  expect_refused(in_loop + ".parameters[0]: begins with another value than operand 0", [&](json& g) {
    g["nodes"][g["regions"][loop]["parameters"][0].get<std::size_t>()]["attrs"]["node"] = node("constant");
  });
  expect_refused("regions[" + std::to_string(then) + "].limit: belongs to loops",
                 [&](json& g) { g["regions"][then]["limit"] = 3; });
  expect_refused(".results[0]: expected f32[], seen f32[4, 6]",
                 [&](json& g) { g["regions"][then]["results"][0] = node("sum"); });
  expect_refused("is in a body, and has no value outside of it",
                 [&](json& g) { g["outputs"][0]["value"] = node("tanh"); });
  expect_refused("is deeper in bodies than 64", [&](json& g) {
    for (int i = 0; i < 70; ++i) g["regions"].push_back({{"parent", g["regions"].size() - 1}});
  });
}

// Their gradients go back through as many iterations as the limit says.
TEST_F(HostileGraph, LoopsThatRunToTheirLimit) {
  Graph g;
  Value x = g.input("x", f32, {5, 3});
  Scan scanned = scan({g.constant(Tensor(f32, {3}))}, {x}, [](const Values& state, const Values& slices) {
    return Scan{{state[0] * slices[0]}, {}};
  });
  g.output("y", scanned.state[0]);
  use(g);
  ASSERT_EQ(message(form_.dump()), "");
  const std::size_t loop = form_["nodes"][node("while_")]["bodies"][0];
  ASSERT_TRUE(form_["regions"][loop]["runs_to_limit"].get<bool>());
  const std::string problem = ".runs_to_limit: the condition of the loop may stop it before";
  expect_refused(problem, [&](json& f) { f["regions"][loop]["limit"] = 6; });
  expect_refused(".limit: the condition of the loop does not stop it there",
                 [&](json& f) { f["regions"][loop]["limit"] = 4; });
  Graph never;
  const Value go = never.input("go", boolean, {});
  const auto counted = while_(
      {never.constant(Tensor::scalar<std::int32_t>(0))}, [&](const Value&) { return go; },
      [](const Value& n) { return n + 1; }, {.max_iterations = 5});
  never.output("n", counted[0]);
  use(never);
  expect_refused(problem, [](json& f) {
    for (json& region : f["regions"])
      if (region.contains("limit")) region["runs_to_limit"] = true;
  });
}

// The program changes the size of such an input: nothing else may have it.
TEST_F(HostileGraph, SizesThatStepsFind) {
  Graph g;
  Value x = g.input("x", f32, {open(4)}), y = g.input("y", u8, {open(4)});
  g.output("a", nonzero(greater(x, 0.0), multiples_of(2)).values);
  g.output("b", nonzero(less(x, 0.0), multiples_of(2)).values);
  g.output("y", cast(y, f32));
  use(g);
  ASSERT_EQ(message(form_.dump()), "");
  std::vector<std::size_t> sizes, found;
  for (std::size_t i = 0; i < form_["nodes"].size(); ++i) {
    const json& n = form_["nodes"][i];
    if (n.contains("attrs") && n["attrs"].value("is_result_size", false)) sizes.push_back(i);
    if (form_["ops"][n["op"].get<std::size_t>()][0] == "nonzero") found.push_back(i);
  }
  ASSERT_EQ(sizes.size(), 2u);
  ASSERT_EQ(found.size(), 2u);
  const auto refused = [&](const std::string& problem, const std::function<void(json&)>& change) {
    const std::string node = "nodes[" + std::to_string(found[1]) + "].in";
    expect_refused(node + problem, [&](json& f) { change(f["nodes"][found[1]]); });
  };
  refused("[1]: is no input that stands for the size", [&](json& n) { n["in"][1] = y.node(); });
  refused("[1]: is no input that stands for the size", [&](json& n) { n["in"][1] = n["in"][0]; });
  refused("[1]: is the size of another result", [&](json& n) { n["in"][1] = sizes[0]; });
  refused("[1]: has another bucket than the result", [](json& n) { n["attrs"]["bucket"] = "multiples of 4"; });
  refused(": expected a value and the size", [](json& n) { n["in"].erase(1); });
  refused("[0]: node " + std::to_string(sizes[1]) + " is the size of a result, and has no data",
          [&](json& n) { n["in"][0] = sizes[1]; });
  expect_node_refused("cast", ".in[0]", "node " + std::to_string(sizes[0]) + " is the size of a result",
                      [&](json& n) { n["in"][0] = sizes[0]; });
  expect_refused("outputs[2].value: node " + std::to_string(sizes[0]) + " is the size of a result",
                 [&](json& f) { f["outputs"][2]["value"] = sizes[0]; });
}

// The number of parts of a split() is a few bytes of the file.
TEST_F(HostileGraph, OutputsThatAreNotListed) {
  Graph g;
  Value x = g.input("x", f32, {open(1 << 16)});
  g.output("y", split(x, 2, 0)[0]);
  use(g);
  ASSERT_EQ(message(form_.dump()), "");
  const auto parts = [&](std::int64_t number) { return [=](json& n) { n["attrs"]["parts"] = number; }; };
  expect_node_refused("split", "", "split: makes 65536 outputs, not 2", parts(1 << 16));
  expect_node_refused("split", "", "split: makes more than 2^16 parts", parts(1 << 20));
  json changed = form_;
  json& n = changed["nodes"][node("split")];
  n["attrs"]["parts"] = 1 << 12;
  n["out"] = std::vector<std::string>(1 << 12, "f32[1]");
  EXPECT_LT(message(changed.dump()).size(), 500u);
}

// As the docs of read_graph() say, which are about large files: a few megabytes are always there.
TEST_F(HostileGraph, RefusalTakesMemoryInProportionToTheFile) {
  if (testing::kSanitized) GTEST_SKIP() << "the sanitizer's own memory would be counted, too";
  const std::filesystem::path path = directory_ / "changed";
  const auto expect_bounded = [&](const std::string& text) {
    checkpoint_.metadata[kKey] = text;
    write_checkpoint(path, checkpoint_);
    EXPECT_LT(testing::memory_of_refusal([&] { (void)read_graph(path); }),
              30 * std::filesystem::file_size(path) + 10'000'000)
        << text.size() << " bytes: " << text.substr(0, 50);
  };
  const auto expect_change_bounded = [&](const std::function<void(json&)>& change) {
    json changed = form_;
    change(changed);
    expect_bounded(changed.dump());
  };
  constexpr std::size_t kMany = 50'000;
  expect_bounded(std::string(kMany, '['));
  expect_bounded(json(std::vector<json>(kMany, json::object())).dump());
  for (const char* list : {"ops", "nodes", "regions", "variables", "outputs"}) {
    expect_change_bounded([&](json& g) { g[list] = std::vector<int>(kMany); });
    expect_change_bounded([&](json& g) { g[list] = std::vector<json>(kMany / 5, g[list][0]); });
  }
  expect_change_bounded(
      [&](json& g) { g["nodes"][node("input")]["attrs"]["dims"][1]["size"] = std::int64_t{1} << 40; });
}

// Each list of a node and of its attributes is long, beside the same with one element.
TEST_F(HostileGraph, RefusalOfALongListOfANodeTakesMemoryInProportionToTheFile) {
  if (testing::kSanitized) GTEST_SKIP() << "the sanitizer's own memory would be counted, too";
  const std::filesystem::path path = directory_ / "changed";
  const auto memory_with = [&](std::size_t id, const json::json_pointer& list, const json& elements) {
    json changed = form_;
    changed["nodes"][id][list] = elements;
    checkpoint_.metadata[kKey] = changed.dump();
    write_checkpoint(path, checkpoint_);
    return testing::memory_of_refusal([&] { (void)read_graph(path); });
  };
  constexpr std::size_t kMany = 70'000;
  const auto expect_bounded = [&](const std::string& op, const std::string& list, std::size_t times) {
    const std::size_t id = node(op);
    const json::json_pointer place(list);
    const std::size_t few = memory_with(id, place, std::vector<int>(1));
    const std::size_t many = memory_with(id, place, std::vector<int>(kMany));
    EXPECT_LT(many, few + times * std::filesystem::file_size(path)) << op << list;
  };
  expect_bounded("matmul", "/in", 65);
  for (const char* list : {"/out", "/on"}) expect_bounded("matmul", list, 35);
  for (const char* list : {"/attrs/begins", "/attrs/ends", "/attrs/steps"}) expect_bounded("slice", list, 35);
  expect_bounded("input", "/attrs/dims", 35);
}

// Everything is built before the last node is refused.
TEST_F(HostileGraph, TheRefusalOfTheLastNodeTakesMemoryInProportionToTheFile) {
  if (testing::kSanitized) GTEST_SKIP() << "the sanitizer's own memory would be counted, too";
  Graph g;
  Value x = g.input("x", f32, {4});
  for (int i = 0; i < 20'000; ++i) x = relu(x);
  g.output("y", x);
  use(g);
  form_["nodes"].back()["region"] = 1000;
  checkpoint_.metadata[kKey] = form_.dump();
  form_ = {};
  const std::filesystem::path path = directory_ / "changed";
  write_checkpoint(path, checkpoint_);
  EXPECT_LT(testing::memory_of_refusal([&] { (void)read_graph(path); }),
            30 * std::filesystem::file_size(path) + 10'000'000);
}

TEST_F(HostileGraph, Results) {
  expect_refused("graph, variables[0].tensor: the file has no tensor",
                 [](json& g) { g["variables"][0]["tensor"] = "nothing"; });
  expect_refused("or another Variable has it",
                 [](json& g) { g["variables"][1]["tensor"] = g["variables"][0]["tensor"]; });
  checkpoint_.tensors.emplace("extra", Tensor::scalar(1.0f));
  expect_refused("no node reads this Variable", [](json& g) {
    g["variables"].push_back({{"name", "extra"}, {"tensor", "extra"}});
  });
  expect_refused("graph, numbers[0].node: is not the constant that is made of the number",
                 [](json& g) { g["numbers"][0]["number"] = 77.0; });
  expect_refused("graph, records[0]: record: ", [&](json& g) { g["records"][0]["value"] = node("step"); });
  expect_refused("graph, records[0].capacity: expected", [](json& g) { g["records"][0]["capacity"] = -1; });
  expect_refused("graph, records[1]: record: the name \"loss\"",
                 [](json& g) { g["records"].push_back(g["records"][0]); });
  expect_refused("graph, stops[0]: stop_when: ", [&](json& g) { g["stops"][0]["value"] = node("step"); });
  expect_refused("graph, stops[8]: stop_when: ", [](json& g) {
    for (int i = 0; i < 8; ++i) g["stops"].push_back(g["stops"][0]);
  });
  expect_refused("graph, outputs[0].value: expected a number from 0", [](json& g) { g["outputs"][0]["value"] = -1; });
  expect_refused("graph, updates[0]", [](json& g) { g["updates"][0]["variables"] = json::array({0}); });
  expect_refused("graph, updates[0].node: is no node of this update", [](json& g) { g["updates"][0]["node"] = 0; });
  expect_refused("assign: ", [&](json& g) {
    for (json& variable : g["variables"])
      if (variable["name"] == "w") variable["assigned"] = node("matmul");
  });
}

}  // namespace
}  // namespace graphsink::hostile_graph_test
