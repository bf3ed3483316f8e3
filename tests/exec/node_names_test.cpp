// The names of captured nodes where no profiler and no CUDA device is needed: pipes, and programs on the CPU.
#include "exec/capture/node_names.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "graphsink/graphsink.h"
#include "messages.h"
#include "temporary_directory.h"

namespace graphsink::node_names_test {
namespace {

using testing::contains;
using testing::message_of;

class OneNode : public CapturedGraph {
 public:
  CaptureInfo info() const override { return {}; }
  ProfiledNodes profiled_nodes() const override { return {3, {{7, nullptr, "kernel \"k\""}}}; }
};

class NodeNamesFiles : public ::testing::Test {
 protected:
  ~NodeNamesFiles() override { unsetenv("GRAPHSINK_NODE_NAMES"); }

  // What names are added to the file by the environment's wish, twice.
  void add_twice(const std::filesystem::path& path) {
    setenv("GRAPHSINK_NODE_NAMES", path.c_str(), 1);
    NodeNamesFile names(log());
    for (int i = 0; i < 2; ++i) names.add(OneNode());
  }
  Log log() {
    return Log([this](LogLevel, std::string_view message) { messages_.emplace_back(message); });
  }
  static std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static constexpr const char* kLine = "{\"id\":7,\"graph\":3,\"work\":\"kernel \\\"k\\\"\"}\n";
  TemporaryDirectory directory_;
  std::vector<std::string> messages_;
};

TEST_F(NodeNamesFiles, AreAddedToOrWrittenAnew) {
  add_twice(directory_ / "names");
  add_twice(directory_ / "names");
  std::string four;
  for (int i = 0; i < 4; ++i) four += kLine;
  EXPECT_EQ(text_of(directory_ / "names"), four);
  write_node_names(directory_ / "names", kLine, {});
  EXPECT_EQ(text_of(directory_ / "names"), kLine);
  EXPECT_TRUE(messages_.empty());
}

// Opening it to write would wait for a reader.
TEST_F(NodeNamesFiles, APipeThatNobodyReadsIsSaid) {
  const std::filesystem::path pipe = directory_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  add_twice(pipe);
  ASSERT_EQ(messages_.size(), 1u);
  EXPECT_TRUE(contains(messages_[0], "pipe: no names are written: the file cannot be written")) << messages_[0];
  const std::string message = message_of([&] { write_node_names(pipe, kLine, {}); });
  EXPECT_TRUE(contains(message, "pipe cannot be written")) << message;
}

// Nor does anything wait for room in it.
TEST_F(NodeNamesFiles, APipeThatIsFullIsSaid) {
  const std::filesystem::path pipe = directory_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_node_names(pipe, kLine, {});
  const std::string message = message_of([&] { write_node_names(pipe, std::string(10'000'000, 'x'), {}); });
  EXPECT_TRUE(contains(message, "pipe cannot be written")) << message;
  ::close(reader);
}

TEST_F(NodeNamesFiles, OnTheCpuThereAreNoneAndThatIsSaid) {
  const std::filesystem::path path = directory_ / "names";
  setenv("GRAPHSINK_NODE_NAMES", path.c_str(), 1);
  Graph g;
  g.output("y", g.constant(Tensor::scalar(1)) + 1.0);
  const auto keep = [&](LogLevel, std::string_view message) { messages_.emplace_back(message); };
  Program program = compile(g, {.target = cpu(), .log = keep});
  for (int i = 0; i < 2; ++i) program.run(sink);
  program.sync();
  ASSERT_EQ(messages_.size(), 1u);
  EXPECT_TRUE(contains(messages_[0], "no names are written: the CPU has no nodes")) << messages_[0];
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace graphsink::node_names_test
