// Trainings of whole models that are written after some steps, and go on from the file as if nothing had happened.
#include <gtest/gtest.h>

#include <cstring>

#include "ir/graph_data.h"
#include "program_fixture.h"
#include "round_trip.h"
#include "samples/models/workloads.h"

namespace graphsink::program_file_test {
namespace {

// The model as it is read from the file.
models::Model loaded_model(const models::Model& model, const std::filesystem::path& path) {
  models::Model loaded = model;
  LoadedGraph file = read_graph(path);
  loaded.graph = file.graph;
  loaded.variables = file.variables;
  for (models::Feed& feed : loaded.feeds) feed.value = Value(file.graph.data(), feed.value.node(), feed.value.output());
  return loaded;
}

class ModelInAFile : public ::testing::TestWithParam<const char*> {};

TEST_P(ModelInAFile, TrainsOnWithTheSameBits) {
  constexpr std::int64_t kBefore = 3, kBehind = 4;
  for (DeviceId device : testing::devices()) {
    models::WorkloadOptions sizes;
    sizes.is_test_size = true;
    models::Model model = models::Workloads(sizes).make(GetParam());
    const TemporaryDirectory directory;
    Program whole = compile(model.graph, {.target = device});
    models::run(whole, model, sink, 0, kBefore);
    (void)whole.records<double>("loss");
    WriteGraphOptions options;
    options.step = whole.steps();
    write_graph(directory / "graph", model.graph, options);
    models::run(whole, model, sink, kBefore, kBehind);
    const std::vector<double> wanted = whole.records<double>("loss");

    models::Model loaded = loaded_model(model, directory / "graph");
    write_graph(directory / "again", loaded.graph, options);
    EXPECT_EQ(testing::file_bytes(directory / "graph"), testing::file_bytes(directory / "again"));
    Program rest = compile(loaded.graph, {.target = device});
    rest.set_steps(kBefore);
    models::run(rest, loaded, sink, kBefore, kBehind);
    EXPECT_EQ(rest.records<double>("loss"), wanted);
    ASSERT_EQ(wanted.size(), static_cast<std::size_t>(kBehind));
    for (std::size_t i = 0; i < loaded.variables.size(); ++i) {
      const Variable& old = model.graph.data()->variables[i].variable;
      const Tensor a = old.read(), b = loaded.variables[i].read();
      EXPECT_EQ(old.name(), loaded.variables[i].name());
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.bytes()), 0) << old.name() << " on " << to_string(device);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModelInAFile, ::testing::Values("mlp", "charmlp", "lstm", "lstm-scan", "gpt"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace graphsink::program_file_test
