// Every op in files of graphs: the list of ops, and a graph of each row of the op table that goes through a file.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "ir/graph_data.h"
#include "round_trip.h"
#include "samples/models/source_dir.h"
#include "test_ops.h"
#include "tests/op_table/op_case.h"

namespace graphsink::op_file_test {
namespace {

using testing::OpRow;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), regex); at != std::sregex_iterator(); ++at)
    found.push_back((*at)[1]);
  return found;
}

// Ops that only plans have: graphs of users never do.
const std::set<std::string> kOfPlans{"begin_op",
                                     "end_op",
                                     "check_host_op",
                                     "check_device_op",
                                     "check_ranks_op",
                                     "tell_step_op",
                                     "mark_stop_op",
                                     "check_op",
                                     "store_op",
                                     "store_at_op",
                                     "clear_op",
                                     "lap_op",
                                     "fused_op",
                                     "matmul_bias_op",
                                     "strided_attention_op",
                                     "fused_kernel_op",
                                     "strided_attention_grad_op"};

TEST(OpFile, TheListHasEveryOpOfTheSources) {
  const std::filesystem::path kernels = std::filesystem::path(source_dir()) / "kernels";
  std::set<std::string> lists;
  int ops = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kernels)) {
    if (entry.path().extension() != ".cu") continue;
    const std::string text = text_of(entry.path());
    for (const std::string& name : matches(text, "\nstd::span<const FileOp> (\\w+_file_ops)\\(\\) \\{"))
      lists.insert(name);
    const std::size_t begin = text.find("_file_ops() {");
    const std::string list = begin == std::string::npos ? "" : text.substr(begin);
    for (const std::string& op : matches(text, "\n(?:constexpr|const) OpDef (\\w+_op)(?:\\{| = )")) {
      if (kOfPlans.contains(op)) continue;
      EXPECT_FALSE(matches(list, ("[(&](" + op + ")\\b").c_str()).empty())
          << op << " in " << entry.path() << " is in no list: name it in its file's ..._file_ops()";
      ++ops;
    }
  }
  EXPECT_GT(ops, 100);
  const std::string all = text_of(kernels / "file_ops.cu");
  for (const std::string& list : lists)
    EXPECT_NE(all.find(list), std::string::npos) << list << " is missing in kernels/file_ops.cu";
}

TEST(OpFile, NamesAndVersionsAreUnique) {
  std::set<std::pair<std::string_view, int>> names;
  for (const FileOp& op : built_in_ops())
    EXPECT_TRUE(names.emplace(op.name_in_file(), op.version).second) << op.name_in_file();
}

// Runs a sunk step of both and compares the bits of all outputs.
void expect_same(DeviceId device, const Graph& a, const Graph& b, const std::vector<std::pair<Value, Tensor>>& data) {
  Program before = compile(a, {.target = device}), after = compile(b, {.target = device});
  for (const auto& [value, tensor] : data) {
    before.write(value, tensor);
    after.write(Value(b.data(), value.node(), value.output()), tensor);
  }
  before.run(sink);
  after.run(sink);
  for (const NamedValue& output : a.data()->outputs) {
    const Tensor x = before.output(output.name), y = after.output(output.name);
    ASSERT_EQ(x.type(), y.type());
    ASSERT_EQ(std::memcmp(x.data(), y.data(), x.bytes()), 0) << output.name << " on " << to_string(device);
  }
}

// The gradients and the second derivatives of an op are built of ops that no function of ops.h makes.
TEST(OpFile, EveryRowOfTheTableComesBack) {
  std::set<std::string_view> seen;
  auto check = [&](const Graph& graph, std::span<const DeviceId> devices,
                   const std::vector<std::pair<Value, Tensor>>& data) {
    for (const Node& node : graph.data()->nodes) seen.insert(node.op->name);
    const Graph loaded = testing::through_file(graph).graph;
    for (DeviceId device : devices) expect_same(device, graph, loaded, data);
  };
  const std::vector<DeviceId> all = testing::devices(), on_cpu{cpu()};
  for (const OpRow& row : testing::op_table()) {
    SCOPED_TRACE(row.name);
    const DType dtype = row.dtypes.front();
    check(testing::OpCase(row, row.cases.front(), dtype, false).graph, all, {});
    if (!row.has_grad || !is_float(dtype)) continue;
    testing::SecondCase second(row, row.cases.front(), dtype, dtype);
    std::vector<std::pair<Value, Tensor>> data;
    for (std::size_t i = 0; i < second.values.size(); ++i)
      data.emplace_back(second.values[i], testing::to_tensor(second.arrays[i], second.dtypes[i]));
    check(second.graph, on_cpu, data);
  }
  // Other tests write graphs with optimizers, loops and random numbers.
  const std::set<std::string_view> elsewhere{
      "sgd",           "momentum",   "adamw",          "updated_sgd",  "updated_momentum", "updated_adamw",
      "gradient_norm", "accumulate", "control_update", "count_update", "updated_counts",   "slice_at",
      "nonzero",       "switch_",    "while_"};
  for (const FileOp& op : built_in_ops()) {
    if (!seen.contains(op.op->name) && !elsewhere.contains(op.op->name)) ADD_FAILURE() << op.op->name << " in no graph";
  }
}

}  // namespace
}  // namespace graphsink::op_file_test
