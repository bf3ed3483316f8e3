// Graphs in files: what comes back runs as before, on every device and in every mode.
#include "graphsink/program_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "ir/graph_data.h"
#include "program_fixture.h"
#include "round_trip.h"
#include "same_outputs.h"
#include "samples/models/source_dir.h"

namespace graphsink::program_file_test {
namespace {

using testing::OnDevice;
using testing::through_file;

Tensor numbers(const Shape& shape, std::uint64_t seed) { return Tensor::uniform(shape, seed, -1.0f, 1.0f); }

// Runs both graphs in all modes, with the same inputs, and compares the bits of outputs and plans.
class ProgramFile : public OnDevice {
 protected:
  void expect_same(const Graph& graph, const LoadedGraph& loaded, std::span<const std::pair<Value, Tensor>> data = {}) {
    Program a = compile(graph), b = compile(loaded.graph);
    EXPECT_EQ(a.explain(), b.explain());
    for (const auto& [value, tensor] : data) {
      a.write(value, tensor);
      b.write(Value(loaded.graph.data(), value.node(), value.output()), tensor);
    }
    testing::expect_same_outputs(a, b);
    for (const auto& [record, value] : loaded.records)
      EXPECT_EQ(a.records<double>(record), b.records<double>(record)) << record;
  }
};

TEST_P(ProgramFile, AGraphOfOpsComesBack) {
  Graph g;
  Value x = g.input("x", f32, {4, 6});
  Value w = g.constant(numbers({6, 3}, 1));
  g.output("y", softmax(matmul(relu(x), w) + 0.5));
  g.output("z", slice(permute(x, {1, 0}), {1, -3}, {to_end, -1}, {2, 1}));
  g.output("r", reshape(x, {keep(0), 3, -1}));
  LoadedGraph loaded = through_file(g);
  EXPECT_EQ(loaded.inputs.at("x").node(), x.node());
  EXPECT_EQ(loaded.outputs.size(), 3u);
  for (const NamedValue& output : g.data()->outputs) {
    EXPECT_EQ(loaded.outputs.at(output.name).node(), output.value.node);
    EXPECT_EQ(loaded.outputs.at(output.name).output(), output.value.output);
  }
  expect_same(g, loaded, {{{x, numbers({4, 6}, 2)}}});
}

TEST_P(ProgramFile, ControlFlowComesBack) {
  Graph g;
  Value x = g.input("x", f32, {3});
  Variable count("count", Tensor::scalar(0.0f));
  auto loop = while_(
      {x, 0.0}, [](const Value&, const Value& n) { return less(n, 4.0); },
      [&](const Value& state, const Value& n) {
        assign(count, g.value(count) + sum(state));
        return std::array{state * 1.5 + random_uniform(state, 0.0, 1.0), n + 1.0};
      });
  Value branch = if_(
      greater(sum(loop[0]), 3.0), [&] { return loop[0] * 2.0; }, [&] { return loop[0] - 1.0; });
  Value chosen = switch_(cast(sum(x), i32), {[&] { return branch; }, [&] { return branch + 1.0; }});
  g.output("y", chosen);
  g.output("count", count);
  LoadedGraph loaded = through_file(g);
  ASSERT_EQ(loaded.variables.size(), 1u);
  EXPECT_EQ(loaded.variables[0].name(), "count");
  expect_same(g, loaded, {{{x, Tensor({0.5f, 0.25f, 0.25f})}}});
}

TEST_P(ProgramFile, AScanWithItsGradientTrainsOn) {
  Graph g;
  Value x = g.input("x", f32, {5, 2, 3});
  Variable w("w", numbers({3, 3}, 3));
  Scan scanned = scan({g.constant(Tensor(f32, {2, 3}))}, {x}, [&](const Values& state, const Values& slices) {
    Value next = tanh(matmul(slices[0], w) + state[0]);
    return Scan{{next}, {next * 2.0}};
  });
  Value loss = mean(scanned.outputs[0]) + sum(scanned.state[0]);
  adamw(loss, {w}, {.lr = 0.01, .gradients = {.clip_norm = 1.0}});
  g.record("loss", loss, {.capacity = 10});
  g.output("w", g.updated(w));
  LoadedGraph loaded = through_file(g);
  expect_same(g, loaded, {{{x, numbers({5, 2, 3}, 4)}}});
}

// Steps of training, each with the loss that it records.
std::vector<double> train(Program& program, const Value& x, const Value& t, int first, int steps) {
  for (int step = first; step < first + steps; ++step) {
    program.write(x, numbers({1, 4, 6}, 100 + static_cast<std::uint64_t>(step)));
    program.write(t, Tensor({1, 4}, std::vector<std::int32_t>{0, 1, step % 3, 2}));
    program.run(sink);
  }
  return program.records<double>("loss");
}

TEST_P(ProgramFile, ATrainingGoesOnAsIfItHadNotStopped) {
  Graph g;
  Value x = g.feed("x", f32, {4, 6}), t = g.feed("t", i32, {4});
  Variable w("w", numbers({6, 3}, 1)), half_w("half", numbers({3, 3}, 2).to(f16));
  Value rate = cosine_schedule(g, {.peak = 0.1, .warmup = 2, .steps = 9});
  Value h = cast(matmul(dropout(x, 0.25), w), f16);
  LossScale scale{.initial = 64, .interval = 2};
  Variable scaled("scale", Tensor::scalar(64.0f));
  scale.variable = scaled;
  Value loss = cross_entropy(cast(matmul(h, half_w), f32), t);
  adamw(loss * g.value(scaled), {w, half_w},
        {.lr = rate, .gradients = {.clip_norm = 1.0, .accumulate = 2, .loss_scale = scale}});
  g.record("loss", loss);
  Program whole = compile(g, {.seed = 5});
  const std::vector<double> begin = train(whole, x, t, 0, 4);
  const TemporaryDirectory directory;
  write_graph(directory / "graph", g, {{}, whole.steps(), {{"model", "test"}}});
  const std::vector<double> wanted = train(whole, x, t, 4, 5);

  LoadedGraph loaded = read_graph(directory / "graph");
  EXPECT_EQ(loaded.step, 4);
  EXPECT_EQ(loaded.metadata, (std::map<std::string, std::string, std::less<>>{{"model", "test"}}));
  Program rest = compile(loaded.graph, {.seed = 5});
  rest.set_steps(loaded.step);
  EXPECT_EQ(train(rest, loaded.feeds.at("x"), loaded.feeds.at("t"), 4, 5), wanted);
  EXPECT_NE(begin, wanted);
  for (std::size_t i = 0; i < loaded.variables.size(); ++i) {
    const Variable& old = g.data()->variables[i].variable;
    EXPECT_EQ(loaded.variables[i].name(), old.name());
    const Tensor a = old.read(), b = loaded.variables[i].read();
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.bytes()), 0) << old.name();
  }
}

TEST_P(ProgramFile, OpenSizesBucketsAndFoundSizesComeBack) {
  Graph g;
  Value x = g.input("x", f32, {open(4, next_power_of_two()), open(3)});
  g.output("mean", masked_mean(sum(x, {1}), valid_mask(x, 0)));
  g.output("rows", true_size(x, 0));
  g.output("found", nonzero(greater(sum(x, {1}), 0.0), multiples_of(2)).values);
  LoadedGraph loaded = through_file(g);
  EXPECT_EQ(loaded.inputs.size(), 1u);
  expect_same(g, loaded, {{{x, numbers({4, 3}, 2)}}});
  expect_same(g, loaded, {{{x, numbers({7, 5}, 3)}}});
}

// The gradient has a copy of the node that finds the size, which uses the same one.
TEST_P(ProgramFile, AFoundSizeInABranchWithAGradientComesBack) {
  Graph g;
  Value x = g.input("x", f32, {open(4)});
  Variable w("w", Tensor({1.0f, 2.0f}));
  Value y = if_(
      greater(sum(x), 0.0), [&] { return sum(cast(nonzero(greater(x, 0.0)).values, f32)) * sum(g.value(w) * w); },
      [&] { return sum(g.value(w)); });
  g.output("y", y);
  g.output("dw", grad(y, {w})[0]);
  LoadedGraph loaded = through_file(g);
  expect_same(g, loaded, {{{x, Tensor({1.0f, -1.0f, 2.0f, 3.0f, -4.0f, 5.0f})}}});
}

TEST_P(ProgramFile, ALoadedGraphCanBeBuiltFurther) {
  Graph g;
  Value x = g.input("x", f32, {3});
  Variable w("w", Tensor({1.0f, 2.0f, 3.0f}));
  auto loop = while_(
      {x * w, 0.0}, [](const Value&, const Value& n) { return less(n, 3.0); },
      [&](const Value& state, const Value& n) {
        return std::array{tanh(state) * w, n + 1.0};
      },
      {.max_iterations = 5});
  Value y = sum(loop[0]);
  g.output("y", y);
  g.record("2 y", y * 2.0);
  LoadedGraph loaded = through_file(g);
  const auto add_gradient = [](Graph& graph, const Value& of, const Variable& variable) {
    graph.output("dw", grad(of, {variable})[0]);
    graph.output("noise", random_normal(graph, f32, {4}, 0.0, 1.0));
  };
  add_gradient(g, y, w);
  add_gradient(loaded.graph, loaded.outputs.at("y"), loaded.variables[0]);
  g.output("of record", grad(g.data()->value(g.data()->records[0].value), {w})[0]);
  loaded.graph.output("of record", grad(loaded.records.at("2 y"), {loaded.variables[0]})[0]);
  expect_same(g, loaded, {{{x, Tensor({0.5f, 0.25f, -0.25f})}}});
}

INSTANTIATE_TEST_SUITE_P(Devices, ProgramFile, ::testing::ValuesIn(testing::devices()), testing::device_name);

struct ScaleAttrs {
  float factor = 0;
  std::vector<std::string> notes{};
  static auto fields(auto& s) { return std::tie("factor", s.factor, "notes", s.notes); }
};
void infer_scale(InferArgs& a) {
  a.expect_inputs(1);
  (void)a.attrs<ScaleAttrs>();
  a.out(a.in(0).dtype, a.in(0).shape);
}
void scale(const CpuArgs& a) {
  for (std::int64_t i = 0; i < a.out_type(0).shape.size(); ++i)
    a.out<float>(0)[i] = a.attrs<ScaleAttrs>().factor * a.in<float>(0)[i];
}
const OpDef scale_op{.name = "scale", .infer = infer_scale, .bodies = {scale}};

Graph scaled_graph() {
  Graph g;
  g.output("y", emit(scale_op, {g.input("x", f32, {2})}, ScaleAttrs{3, {"a", "\n\"b\""}})[0]);
  return g;
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(ProgramFileOps, AreThoseOfTheTable) {
  const TemporaryDirectory directory;
  const Graph g = scaled_graph();
  const std::string path = directory / "graph";
  EXPECT_HAS(refusal([&] { write_graph(path, g); }), "the op \"scale\" at program_file_test.cpp:");
  const FileOp ops[] = {file_op<ScaleAttrs>(scale_op)}, without[] = {file_op(scale_op)};
  const FileOp newer[] = {file_op<ScaleAttrs>(scale_op, 2)}, twice[] = {ops[0], ops[0]};
  EXPECT_HAS(refusal([&] { write_graph(path, g, {{without}}); }), "has attributes, and its entry in `ops` says none");
  EXPECT_HAS(refusal([&] { write_graph(path, g, {{twice}}); }), "two ops are named \"scale\" in version 1");
  write_graph(path, g, {{ops}});
  EXPECT_HAS(refusal([&] { (void)read_graph(path); }), "the op \"scale\" is not known");
  EXPECT_HAS(refusal([&] { (void)read_graph(path, {{newer}}); }), "has version 1, and the newest that is known is 2");
  LoadedGraph loaded = read_graph(path, {{ops}});
  const auto& attrs = loaded.graph.data()->nodes.back().attrs.as<ScaleAttrs>();
  EXPECT_EQ(attrs.notes[1], "\n\"b\"");
  Program program = compile(loaded.graph);
  program.write(loaded.inputs.at("x"), Tensor({1.0f, -2.0f}));
  program.run();
  EXPECT_EQ(program.output("y").at(1), -6.0);
}

// In version 2 there is another factor beside the one of version 1.
struct ScaleAttrs1 {
  float by = 0;
  static auto fields(auto& s) { return std::tie("by", s.by); }
};
Attrs read_version_1(FieldIo& io) {
  ScaleAttrs1 old;
  transfer_value(io, old);
  return ScaleAttrs{old.by};
}
void write_version_1(FieldIo& io, const Attrs& attrs) {
  ScaleAttrs1 old{attrs.as<ScaleAttrs>().factor};
  transfer_value(io, old);
}

TEST(ProgramFileOps, OldVersionsAreReadByTheirEntry) {
  const TemporaryDirectory directory;
  const FileOp then[] = {{&scale_op, {write_version_1, read_version_1}, 1}};
  const FileOp now[] = {then[0], file_op<ScaleAttrs>(scale_op, 2)};
  write_graph(directory / "old", scaled_graph(), {{then}});
  write_graph(directory / "new", scaled_graph(), {{now}});
  for (const char* name : {"old", "new"}) {
    LoadedGraph loaded = read_graph(directory / name, {{now}});
    EXPECT_EQ(loaded.graph.data()->nodes.back().attrs.as<ScaleAttrs>().factor, 3.0f);
  }
  EXPECT_HAS(refusal([&] { (void)read_graph(directory / "new", {{then}}); }), "has version 2");
}

// What an old library wrote: in version 2 random ops had the number of a part along the first axis, in version 1 none.
Graph of_old_version(const Graph& g, int version) {
  using nlohmann::json;
  const TemporaryDirectory directory;
  write_graph(directory / "now", g);
  Checkpoint file = read_checkpoint(directory / "now");
  json form = json::parse(file.metadata.at("graphsink.graph"));
  int changed = 0;
  for (json& node : form["nodes"]) {
    if (!node.contains("attrs") || !node["attrs"].contains("part")) continue;
    json& op = form["ops"][node["op"].get<std::size_t>()];
    op[1] = version;
    json& attrs = node["attrs"];
    if (version == 1) {
      attrs.erase("part");
    } else {
      attrs["part"] = json(attrs["part"]["first"]);
    }
    ++changed;
  }
  EXPECT_EQ(changed, 5);
  file.metadata["graphsink.graph"] = form.dump();
  write_checkpoint(directory / "then", file);
  return read_graph(directory / "then").graph;
}

TEST(ProgramFileOps, RandomOpsOfOldVersionsDrawTheSame) {
  for (const int version : {1, 2}) {
    const RandomPart part(version == 1 ? 0 : 3);
    Graph g;
    const Value x = g.constant(numbers({2, 5}, 1)), dropped = dropout(x, 0.5);
    g.output("uniform", random_uniform(x));
    g.output("normal", random_normal(g, f64, {3, 3}));
    g.output("integers", randint(x, 0, 1000));
    g.output("dropped", dropped);
    g.output("slope", grad(sum(dropped), {x})[0]);
    Program then = compile(of_old_version(g, version)), now = compile(g);
    then.run();
    now.run();
    for (const char* name : {"uniform", "normal", "integers", "dropped", "slope"}) {
      const Tensor a = then.output(name), b = now.output(name);
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.bytes()), 0) << name << ", version " << version;
    }
  }
}

TEST(ProgramFileOps, PartsOfRandomOpsComeBack) {
  const RandomPart batch(2), hidden(1, {.axis = -1, .parts = 3});
  Graph g;
  const Value x = g.constant(numbers({2, 5}, 1));
  g.output("uniform", random_uniform(x));
  g.output("normal", random_normal(x));
  g.output("integers", randint(x, 0, 1000));
  g.output("dropped", dropout(x, 0.5));
  const Graph loaded = through_file(g).graph;
  for (std::size_t i = 0; i < g.data()->nodes.size(); ++i) {
    const Node &before = g.data()->nodes[i], &after = loaded.data()->nodes[i];
    EXPECT_TRUE(before.attrs == after.attrs) << before.op->name;
  }
  Program before = compile(g), after = compile(loaded);
  before.run();
  after.run();
  for (const char* name : {"uniform", "normal", "integers", "dropped"}) {
    const Tensor a = before.output(name), b = after.output(name);
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.bytes()), 0) << name;
  }
}

TEST(ProgramFileOps, AnExternalOpIsRefused) {
  Graph g;
  Value x = g.input("x", f32, {2});
  g.output("y",
           external_op(
               {.name = "mine", .infer = [](InferArgs& a) { a.out(f32, a.in(0).shape); }, .cpu = [](const CpuArgs&) {}},
               {x})[0]);
  const TemporaryDirectory directory;
  EXPECT_HAS(refusal([&] { write_graph(directory / "graph", g); }), "make it an OpDef");
}

struct AllKinds {
  bool flag = false;
  std::int8_t small = 0;
  std::uint64_t large = 0;
  half f = half(0.0f);
  std::array<double, 4> numbers{};
  std::optional<std::vector<std::int64_t>> list{};
  DType dtype = f32;
  Shape shape{};
  Bucket bucket{};
  std::optional<std::string> text{};
  static auto fields(auto& s) {
    return std::tie("flag", s.flag, "small", s.small, "large", s.large, "f", s.f, "numbers", s.numbers, "list", s.list,
                    "dtype", s.dtype, "shape", s.shape, "bucket", s.bucket, "text", s.text);
  }
};
void infer_all(InferArgs& a) { a.out(a.in(0).dtype, a.in(0).shape); }
const OpDef all_op{.name = "all_kinds", .infer = infer_all};

TEST(ProgramFileOps, AttributesKeepAllTheirBits) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kMost = std::numeric_limits<double>::max();
  const std::vector<AllKinds> all{
      {},
      {true,
       -128,
       ~std::uint64_t{0},
       half(-1.5f),
       {-0.0, 1e-310, 0.1, 1e22},
       {{INT64_MIN, INT64_MAX}},
       bf16,
       {3, 0},
       one_of({4, 8}),
       ""},
      {false,
       127,
       1,
       half(0.0f),
       {kNan, -kNan, INFINITY, -kMost},
       {{}},
       boolean,
       {},
       next_power_of_two(),
       "\xc3\xa9\x01"},
  };
  Graph g;
  Value x = g.input("x", f32, {2});
  for (const AllKinds& attrs : all) emit(all_op, {x}, attrs);
  const FileOp ops[] = {file_op<AllKinds>(all_op)};
  LoadedGraph loaded = through_file(g, ops);
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_TRUE(is_same_value(loaded.graph.data()->nodes[i + 1].attrs.as<AllKinds>(), all[i])) << i;
}

TEST(ProgramFileNames, ScopesLinesAndVariablesOfOneNameComeBack) {
  Graph g;
  Value y;
  {
    Scope scope("encoder");
    Variable a("w", Tensor::scalar(1.0f));
    y = g.value(a) * 2.0;
  }
  Variable b("encoder/w", Tensor::scalar(2.0f)), c("graphsink.constant.0", Tensor::scalar(4.0f));
  g.output("y", y + b + c);
  LoadedGraph loaded = through_file(g);
  const GraphData &before = *g.data(), &after = *loaded.graph.data();
  for (std::size_t i = 0; i < before.nodes.size(); ++i)
    EXPECT_EQ(to_string(before.nodes[i].where), to_string(after.nodes[i].where));
  ASSERT_EQ(loaded.variables.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(loaded.variables[i].name(), g.data()->variables[i].variable.name());
    EXPECT_EQ(loaded.variables[i].read().at(0), static_cast<double>(1 << i));
  }
  Program program = compile(loaded.graph);
  program.run();
  EXPECT_EQ(program.output("y").at(0), 8.0);
}

// A file of the first version of the form, written from graph_for_files() as it was then. It must be read for ever; a
// new version of the form gets a file of its own.
TEST(ProgramFileNames, AFileOfVersion1IsRead) {
  const std::string path = std::string(source_dir()) + "/tests/golden/program_file_1.safetensors";
  for (DeviceId device : testing::devices()) {
    LoadedGraph loaded = read_graph(path);
    ASSERT_EQ(loaded.records.size(), 1u);
    EXPECT_EQ(loaded.records.at("loss").type(), (TensorType{f32, {}}));
    EXPECT_EQ(loaded.outputs.size(), 2u);
    EXPECT_EQ(loaded.outputs.at("size").type(), (TensorType{i32, {}}));
    EXPECT_EQ(loaded.outputs.at("updated").type(), (TensorType{f32, {6, 6}}));
    Program program = compile(loaded.graph, {.target = device});
    program.write(loaded.inputs.at("x"), Tensor(f32, {3, 6}));
    program.write(loaded.feeds.at("t"), Tensor({2, 4}, std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 0, 1}));
    program.run(sink, {.steps = 2});
    const std::vector<double> losses = program.records<double>("loss");
    ASSERT_EQ(losses.size(), 2u);
    EXPECT_NEAR(losses[0], 2.19998884, 1e-4);
    EXPECT_NEAR(losses[1], 1.79175949, 1e-4);
    EXPECT_EQ(program.output("size").at(0), 3.0);
    EXPECT_NEAR(program.output("updated").at(7), 0.519150734, 1e-5);
  }
}

// Files have no such number, so none may be built.
TEST(ProgramFileNames, OfDevicesAreAtLeast0) {
  Graph g;
  Value x = g.input("x", f32, {2});
  EXPECT_HAS(refusal([&] { (void)relu(x, on_device(-3)); }), "its placement is on_device(-3)");
  g.output("y", relu(x, on_device(3)));
  EXPECT_EQ(through_file(g).graph.data()->nodes.back().placement, on_device(3));
}

TEST(ProgramFileNames, AFileIsACheckpoint) {
  Graph g;
  Variable w("w", Tensor({1.0f, 2.0f}));
  g.assign(w, g.value(w) * 2.0);
  const TemporaryDirectory directory;
  write_graph(directory / "graph", g, {{}, 7});
  Program program = compile(g);
  program.run();
  restore(program, read_checkpoint(directory / "graph"), {.allow_unused = true});
  EXPECT_EQ(program.steps(), 7);
  EXPECT_EQ(w.read().at(1), 2.0);
}

TEST(ProgramFileNames, WhatCannotBeReadAgainIsRefused) {
  const TemporaryDirectory directory;
  Graph g;
  Value x = g.input("x", f32, {2});
  std::string inside;
  const auto body = [&] {
    inside = refusal([&] { write_graph(directory / "graph", g); });
    return x;
  };
  (void)if_(greater(sum(x), 0.0), body, body);
  EXPECT_HAS(inside, "is under construction");
  EXPECT_HAS(refusal([&] { write_graph(directory / "graph", g, {{}, 0, {{"step", "1"}}}); }), "metadata has \"step\"");
  EXPECT_HAS(refusal([&] { write_graph(directory / "graph", g, {{}, -1}); }), "the step is -1");
  for (const bool is_feed : {false, true}) {
    Graph named;
    const Value y = is_feed ? named.feed("x\xff", f32, {2}) : named.input("x\xff", f32, {2});
    named.output("y", relu(y));
    EXPECT_HAS(refusal([&] { write_graph(directory / "graph", named); }),
               "the name of an input, \"x\\xff\", is not UTF-8; remedy: give names in UTF-8");
  }
  Graph named;
  named.output("y\xff", relu(named.input("x", f32, {2})));
  EXPECT_HAS(refusal([&] { write_graph(directory / "graph", named); }),
             "the name of an output or a record, \"y\\xff\", is not UTF-8");
  const auto thrower = [&]() -> Value { throw std::runtime_error("no"); };
  EXPECT_THROW((void)if_(greater(sum(x), 0.0), thrower, thrower), std::runtime_error);
  EXPECT_HAS(refusal([&] { write_graph(directory / "graph", g); }), "was left by an exception");
}

}  // namespace
}  // namespace graphsink::program_file_test
