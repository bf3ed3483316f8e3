// write_node_names() and GRAPHSINK_NODE_NAMES: what profilers need to know of captured nodes.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "graphsink/capture.h"
#include "graphsink/cuda.h"
#include "guest_kernels.h"
#include "messages.h"
#include "program_fixture.h"

namespace graphsink::testing::cuda_node_names_test {
namespace {

using Json = nlohmann::json;

class NodeNames : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device answers";
    Program p = sunk(product());
    const std::string message = message_of([&] { p.write_node_names(file_); });
    if (contains(message, "libcupti")) GTEST_SKIP() << message;
    std::filesystem::remove(file_);
  }
  void TearDown() override {
    unsetenv("GRAPHSINK_NODE_NAMES");
    std::filesystem::remove(file_);
  }

  static Program sunk(const Graph& g, CompileOptions options = {}) {
    options.target = cuda(0);
    Program p = compile(g, options);
    for (int i = 0; i < 2; ++i) p.run();
    return p;
  }
  Graph product() {
    Graph g;
    Variable a("a", Tensor(f32, {2, 3}));
    Variable b("b", Tensor(f32, {3, 4}));
    line_ = __LINE__ + 1;
    g.output("y", matmul(a, g.value(b)));
    return g;
  }
  std::vector<Json> lines() {
    std::ifstream file(file_);
    std::vector<Json> result;
    for (std::string line; std::getline(file, line);) result.push_back(Json::parse(line));
    return result;
  }
  std::vector<Json> lines_of(const std::string& op) {
    std::vector<Json> result = lines();
    std::erase_if(result, [&](const Json& line) { return line.value("op", "") != op; });
    return result;
  }
  // One for each process: tests of one program may run at once.
  std::string file_ = (std::filesystem::temp_directory_path() / ("node_names." + std::to_string(getpid()))).string();
  int line_ = 0;
};

TEST_F(NodeNames, AnOpHasItsLineItsBytesAndItsOperations) {
  const Graph g = product();
  Program p = sunk(g);
  p.write_node_names(file_);
  const std::vector<Json> products = lines_of("matmul");
  ASSERT_FALSE(products.empty());
  EXPECT_TRUE(contains(products[0]["where"], "cuda_node_names_test.cpp:" + std::to_string(line_))) << products[0];
  EXPECT_EQ(products[0]["bytes"], 4 * (2 * 3 + 3 * 4 + 2 * 4));
  EXPECT_EQ(products[0]["flops"], 2 * 2 * 4 * 3);
  EXPECT_TRUE(contains(products[0]["work"], "kernel ")) << products[0];
}

TEST_F(NodeNames, AnOpHasItsScope) {
  Graph g;
  const Value x = g.value(Variable("x", Tensor(f32, {4})));
  const Scope scope("layer3");
  g.output("y", tanh(x));
  Program p = sunk(g);
  p.write_node_names(file_);
  const std::vector<Json> found = lines_of("tanh");
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].value("scope", ""), "layer3") << found[0];
}

TEST_F(NodeNames, EveryNodeOfEveryCaptureIsThere) {
  Graph g;
  Value x = g.input("x", f32, {8});
  Value y = while_(
      {x}, [](Value v) { return sum(v) < 100.0; }, [](Value v) { return v * 2.0; })[0];
  g.output("y", y);
  Program p = compile(g, {.target = cuda(0), .tuning = {.fuse = false}});
  p.write(x, std::vector<float>(8, 1));
  for (int i = 0; i < 2; ++i) p.run();
  p.run(sink, {.steps = 3});
  p.write_node_names(file_);
  std::set<std::uint64_t> ids;
  std::set<std::uint32_t> graphs;
  for (const Json& line : lines()) {
    ids.insert(line.at("id").get<std::uint64_t>());
    graphs.insert(line.at("graph").get<std::uint32_t>());
  }
  const auto nodes = [](const CaptureInfo& info) {
    return info.kernels + info.copies + info.host_nodes + info.conditional_nodes + info.empty_nodes;
  };
  EXPECT_EQ(ids.size(), static_cast<std::size_t>(nodes(*p.captured()) + nodes(*p.captured(LaunchOf::several_steps))));
  EXPECT_EQ(graphs.size(), 2u) << "one step, and several";
  EXPECT_EQ(lines_of("mul").size(), 2u) << "bodies of loops are there";
}

TEST_F(NodeNames, OperationsOfProductsOfAllKinds) {
  Graph g;
  auto variable = [](const char* name, const Shape& shape) { return Variable(name, Tensor(f32, shape)); };
  Value a = g.value(variable("a", {5, 3, 2})), b = g.value(variable("b", {5, 4, 2}));
  g.output("product", matmul(a, b, {.transpose_b = true}));
  Value image = g.value(variable("image", {2, 4, 6, 5})), filters = g.value(variable("filters", {8, 2, 3, 3}));
  Value convolved = conv2d(image, filters, {.groups = 2});  // [2, 8, 4, 3]
  const std::vector<Value> by = grad(sum(convolved), {image, filters});
  g.output("image", by[0]);
  g.output("filters", by[1]);
  Value q = g.value(variable("q", {1, 2, 3, 4})), k = g.value(variable("k", {1, 2, 5, 4}));
  Value attended = attention(q, k, k, {.causal = true});  // 3 queries see 3, 4 and 5 keys
  g.output("attended", attended);
  g.output("q", grad(sum(attended), {q})[0]);
  sunk(g).write_node_names(file_);
  const auto flops_of = [&](const char* op) {
    const std::vector<Json> found = lines_of(op);
    return found.empty() ? -1 : found[0]["flops"].get<int>();
  };
  EXPECT_EQ(flops_of("matmul"), 2 * 5 * 3 * 4 * 2);
  const int convolution = 2 * (2 * 8 * 4 * 3) * (2 * 3 * 3);
  EXPECT_EQ(flops_of("conv2d"), convolution);
  EXPECT_EQ(flops_of("conv2d_image_grad"), convolution);
  EXPECT_EQ(flops_of("conv2d_filter_grad"), convolution);
  EXPECT_EQ(flops_of("attention"), 2 * 2 * 2 * (3 + 4 + 5) * 4);
  EXPECT_EQ(flops_of("attention_grad"), 5 * 2 * 2 * (3 + 4 + 5) * 4);
}

// Sums over batches are one product with all rows, and fused ops count their product.
TEST_F(NodeNames, OperationsOfGradientsAndFusedProducts) {
  Graph g;
  Variable w("w", Tensor(f32, {4, 6}));
  Value x = g.value(Variable("x", Tensor(f32, {5, 3, 4})));
  Value y = relu(matmul(x, w) + Variable("b", Tensor(f32, {6})));
  g.output("w", grad(sum(y), {w})[0]);
  g.output("y", y);
  sunk(g).write_node_names(file_);
  std::multiset<int> counts;
  for (const Json& line : lines())
    if (line.contains("flops")) counts.insert(line["flops"].get<int>());
  EXPECT_GE(counts.size(), 2u);
  for (int count : counts) EXPECT_EQ(count, 2 * 5 * 3 * 6 * 4);
}

TEST_F(NodeNames, KeysOfASinkCacheAreNamed) {
  int* sum = nullptr;
  ASSERT_EQ(cudaSuccess, cudaMalloc(reinterpret_cast<void**>(&sum), sizeof(int)));
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    SinkCache sinks;
    const std::string message = message_of([&] { sinks.write_node_names(file_); });
    EXPECT_TRUE(contains(message, "nothing is captured")) << message;
    for (int i = 0; i < 3; ++i)
      for (int key : {7, 8}) sinks.run(stream, Key{key}, [&](cudaStream_t s) { guest_add(s, sum, key); });
    sinks.run(stream, Key{8}, [&](cudaStream_t s) { guest_add(s, sum, 8); }, {.steps = 4});
    sinks.write_node_names(file_);
    std::multiset<std::string> keys;
    for (const Json& line : lines()) {
      keys.insert(line.at("key").get<std::string>());
      EXPECT_FALSE(line.contains("op"));
    }
    EXPECT_EQ(keys.count(to_string(Key{7})), 1u) << "a kernel";
    EXPECT_EQ(keys.count(to_string(Key{8})), 5u) << "and in a loop: loop, copy, kernel, count";
    ASSERT_EQ(cudaSuccess, cudaStreamSynchronize(stream));
  }
  EXPECT_EQ(cudaSuccess, cudaStreamDestroy(stream));
  EXPECT_EQ(cudaSuccess, cudaFree(sum));
}

// Profilers show the nodes from which the executable graph was made: those of the key that gave it away.
TEST_F(NodeNames, AKeyThatTookOverAGraphHasNoLines) {
  int* sum = nullptr;
  ASSERT_EQ(cudaSuccess, cudaMalloc(reinterpret_cast<void**>(&sum), sizeof(int)));
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    SinkCache sinks({.max_bytes = 160 << 10, .warm_runs = 0});
    for (int key : {7, 8}) {
      sinks.run(stream, Key{key}, [&](cudaStream_t s) { guest_add(s, sum, key); });
      ASSERT_EQ(cudaSuccess, cudaStreamSynchronize(stream));
    }
    ASSERT_EQ(sinks.report().updates, 1u);
    EXPECT_TRUE(contains(message_of([&] { sinks.write_node_names(file_); }), "nothing is captured"));
  }
  EXPECT_EQ(cudaSuccess, cudaStreamDestroy(stream));
  EXPECT_EQ(cudaSuccess, cudaFree(sum));
}

TEST_F(NodeNames, TheEnvironmentAsksForNamesOfEveryCapture) {
  ASSERT_EQ(0, setenv("GRAPHSINK_NODE_NAMES", file_.c_str(), 1));
  (void)sunk(product());
  const std::size_t once = lines().size();
  EXPECT_GT(once, 0u);
  (void)sunk(product());
  EXPECT_EQ(lines().size(), 2 * once) << "programs share the file";
}

TEST_F(NodeNames, AFileThatCannotBeWrittenIsSaidOnce) {
  Program p = sunk(product());
  const std::string message = message_of([&] { p.write_node_names("/nowhere/names"); });
  EXPECT_TRUE(contains(message, "/nowhere/names cannot be written")) << message;
  ASSERT_EQ(0, setenv("GRAPHSINK_NODE_NAMES", "/nowhere/names", 1));
  std::vector<std::string> log;
  Graph g = product();
  Program told =
      compile(g, {.target = cuda(0), .log = [&](LogLevel, std::string_view text) { log.emplace_back(text); }});
  for (int steps : {1, 1, 3}) told.run(sink, {.steps = steps});
  told.sync();
  ASSERT_EQ(log.size(), 1u);
  EXPECT_TRUE(contains(log[0], "GRAPHSINK_NODE_NAMES=/nowhere/names")) << log[0];
}

TEST(NodeNamesOnTheCpu, AreRefused) {
  Graph g;
  g.output("y", g.constant(Tensor::scalar(1)) + 1.0);
  Program p = graphsink::compile(g, {.target = cpu()});
  for (int i = 0; i < 2; ++i) p.run();
  const std::string message = message_of([&] { p.write_node_names("unused"); });
  EXPECT_TRUE(contains(message, "on a CUDA device")) << message;
}

}  // namespace
}  // namespace graphsink::testing::cuda_node_names_test
