// Variables that live on a further device: where their updates run, that a step commits on all devices or on none, and
// that they can be used like all others.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/plan_of.h"
#include "graphsink/graphsink.h"
#include "ir/graph_data.h"
#include "ir/system_ops.h"
#include "messages.h"
#include "passes/passes.h"
#include "passes/plan_queries.h"
#include "round_trip.h"
#include "test_ops.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

namespace graphsink::cuda_placed_variables_test {
namespace {

using testing::contains;
using testing::message_of;

// Two layers. The parameters of the second one, a counter and all state of theirs live where `second` says.
struct TwoParts {
  explicit TwoParts(Placement second, const GradientOptions& gradients = {})
      : w1("w1", Tensor::kaiming({8, 16}, 1)),
        w2("w2", Tensor::kaiming({16, 4}, 2), second),
        b2("b2", Tensor(f32, {4}), second),
        seen("seen", Tensor(f32, {}), second) {
    x = g.feed("x", f32, {8, 8});
    const Value h = relu(matmul(x, w1));
    const Value y = matmul(h, w2) + b2;
    loss = mean(y * y);
    const Optimizer optimizer = adamw(loss, {w1, w2, b2}, {.lr = 0.05, .gradients = gradients});
    state = optimizer.state;
    average = exponential_average(g, {w2}, 0.9).front();
    seen.write(Tensor::scalar(0.0f));
    assign(seen, seen + mean(h));
    g.record("loss", loss);
    g.output("w2", g.value(seen) + 0.0);
  }

  Graph g;
  Value x, loss;
  Variable w1, w2, b2, seen, average;
  std::vector<Variable> state;
};

using Outcome = std::map<std::string, std::vector<std::byte>>;

Outcome outcome_of(Program& program) {
  Outcome outcome;
  auto add = [&](const std::string& name, const Tensor& tensor) {
    outcome[name] = {tensor.data(), tensor.data() + tensor.bytes()};
  };
  for (const auto& [name, tensor] : snapshot(program).tensors) add(name, tensor);
  const std::vector<double> losses = program.records<double>("loss");
  add("loss", Tensor({static_cast<std::int64_t>(losses.size())}, losses));
  return outcome;
}

void write_feed(Program& program, const Value& x, std::int64_t steps, std::uint64_t seed = 5) {
  program.write(x, Tensor::uniform({steps, 8, 8}, seed, -1.0f, 1.0f));
}

Outcome trained(TwoParts& parts, const CompileOptions& options, Mode mode, std::int64_t steps = 16) {
  Program program = compile(parts.g, options);
  for (int run = 0; run < 2; ++run) {
    write_feed(program, parts.x, steps, 5 + run);
    program.run(mode, {.steps = steps});
  }
  return outcome_of(program);
}

int device_of(const Plan& plan, const Variable& variable) {
  for (std::size_t i = 0; i < plan.variables.size(); ++i)
    if (plan.variables[i] == variable) return plan.variable_devices[i];
  ADD_FAILURE() << "no " << variable.name();
  return -1;
}

// --- plans

Plan plan_for(const Graph& g, int further = 1) {
  Target target = Target::cuda13();
  PlanOptions options;
  for (int i = 1; i <= further; ++i) {
    Target other = target;
    other.id = cuda(i);
    other.peers = {0};
    options.further_targets.push_back(other);
    target.peers.push_back(i);
  }
  return make_plan(g, target, system_ops(), {}, options);
}

TEST(PlacedVariablesPlan, StateLivesAndCommitsBesideItsParameter) {
  const TwoParts parts(on_device(1), {.clip_norm = 1.0, .accumulate = 2});
  const Plan plan = plan_for(parts.g);
  EXPECT_EQ(device_of(plan, parts.w1), 0);
  for (const Variable& variable : {parts.w2, parts.b2, parts.seen, parts.average})
    EXPECT_EQ(device_of(plan, variable), 1) << variable.name();
  int there = 0;
  for (const Variable& variable : parts.state) {
    const bool is_of_second = variable.name().starts_with("w2.") || variable.name().starts_with("b2.");
    EXPECT_EQ(device_of(plan, variable), is_of_second ? 1 : 0) << variable.name();
    there += is_of_second;
  }
  EXPECT_EQ(there, 6) << "moments and a sum of gradients of each";
  std::vector<int> commits(2), told;
  for (const Task& task : plan.tasks_of(0)) {
    if (task.kind != TaskKind::call) continue;
    const PlanNode& node = plan.nodes[static_cast<std::size_t>(task.node)];
    for (int i = 0; i < node.inputs; ++i) {
      const int buffer = node.operands[static_cast<std::size_t>(i)];
      if (buffer < 0) continue;
      EXPECT_EQ(plan.buffers[static_cast<std::size_t>(buffer)].device, node.device) << node.op->name;
    }
    if (!writes_variables(*node.op, static_cast<std::size_t>(node.inputs))) continue;
    ++commits[static_cast<std::size_t>(node.device)];
    EXPECT_EQ(plan.stream_devices[static_cast<std::size_t>(task.stream)], node.device) << node.op->name;
  }
  EXPECT_EQ(commits, (std::vector{3, 2})) << "updates and stores, and a count on the target";
}

TEST(PlacedVariablesPlan, WhatUsesThemFollows) {
  Graph g;
  const Variable big("big", Tensor(f32, {64, 64}), on_device(1));
  g.output("y", sum(matmul(g.input("x", f32, {2, 64}), big)));
  const Plan plan = plan_for(g);
  EXPECT_EQ(std::count_if(plan.nodes.begin(), plan.nodes.end(),
                          [](const PlanNode& node) { return node.op->name == "matmul" && node.device == 1; }),
            1);
}

TEST(PlacedVariablesPlan, IsExplained) {
  const TwoParts parts(on_device(1));
  const Plan plan = plan_for(parts.g);
  EXPECT_TRUE(contains(plan.explain(), "8 Variables on cuda:1")) << plan.explain();
  EXPECT_TRUE(contains(plan.explain(), "because of the placement on_device(1)")) << plan.explain();
  const auto list = nlohmann::json::parse(plan.explain_json()).at("variables_elsewhere");
  ASSERT_EQ(list.size(), 8u);
  for (const auto& each : list) {
    EXPECT_EQ(each.at("device"), "cuda:1");
    const bool is_own = each.at("name") == "w2" || each.at("name") == "b2" || each.at("name") == "seen";
    EXPECT_EQ(each.at("why"), is_own ? "its placement" : "the placement of its parameter");
  }
  const TwoParts here{Placement()};
  EXPECT_FALSE(contains(plan_for(here.g).explain_json(), "variables_elsewhere"));
}

TEST(PlacedVariablesPlan, SaysWhatItCannotServe) {
  EXPECT_TRUE(contains(message_of([] { Variable("w", Tensor({1.0f}), on_cpu); }), "Variables live on devices"));
  EXPECT_TRUE(contains(message_of([] { Variable("w", Tensor({1.0f}), on_device(-1)); }), "on_device(-1)"));
  const TwoParts parts(on_device(2));
  EXPECT_TRUE(contains(message_of([&] { plan_for(parts.g, 0); }), "\"w2\""));
  EXPECT_TRUE(contains(message_of([&] { plan_for(parts.g, 0); }), "no further device"));
  EXPECT_TRUE(contains(message_of([&] { plan_for(parts.g, 1); }), "only 1 further"));
  // An op of a user's that commits.
  static constexpr auto count_up = [](CudaArgs&) {};
  static const OpDef counts{.name = "counts",
                            .infer = [](InferArgs&) {},
                            .access = [](int, int) { return Access::write; },
                            .bodies = {count_up}};
  const Variable here("here", Tensor({1.0f})), there("there", Tensor({1.0f}), on_device(1));
  auto message = [&](const std::vector<Variable>& variables, Placement on) {
    Graph g;
    std::vector<Arg> operands;
    for (const Variable& variable : variables) operands.emplace_back(g.value(variable));
    return message_of([&] {
      emit(counts, operands, {}, on);
      plan_for(g);
    });
  };
  EXPECT_TRUE(contains(message({here, there}, {}), "lives on cuda:1"));
  EXPECT_TRUE(contains(message({here}, on_device(1)), "live on on_device(0)"));
  EXPECT_TRUE(contains(message({there}, on_device), "live on on_device(1)"));
  EXPECT_EQ(message({there}, on_device(1)), "nothing was thrown");
}

// --- programs

class PlacedVariables : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef GRAPHSINK_EMULATED
    emu::set_device_count(3);
#endif
    if (cuda_device_count() < 2) GTEST_SKIP() << "needs two CUDA devices";
  }
  void TearDown() override {
#ifdef GRAPHSINK_EMULATED
    emu::set_peer_access(true);
    emu::set_device_count(1);
#endif
  }
  static CompileOptions one() { return {.target = cuda(0)}; }
  static CompileOptions two() { return {.target = cuda(0), .further_devices = {cuda(1)}}; }
  template <class Check>
  static void with_and_without_peers(Check check) {
#ifdef GRAPHSINK_EMULATED
    for (bool peers : {true, false}) {
      emu::set_peer_access(peers);
      check(peers);
    }
#else
    check(true);
#endif
  }
};

TEST_F(PlacedVariables, HaveTheBitsOfOneDeviceInAllModes) {
  TwoParts parts{Placement()};
  const Outcome expected = trained(parts, one(), interactive);
  with_and_without_peers([&](bool peers) {
    for (Mode mode : kAllModes) {
      TwoParts placed(on_device(1));
      EXPECT_EQ(trained(placed, two(), mode), expected) << to_string(mode) << ", peers " << peers;
    }
  });
}

TEST_F(PlacedVariables, SoDoClippedAndAccumulatedGradients) {
  const GradientOptions gradients{.clip_norm = 0.1, .accumulate = 3, .loss_scale = LossScale()};
  TwoParts parts({}, gradients);
  const Outcome expected = trained(parts, one(), interactive);
  for (Mode mode : kAllModes) {
    TwoParts placed(on_device(1), gradients);
    EXPECT_EQ(trained(placed, two(), mode), expected) << to_string(mode);
  }
}

TEST_F(PlacedVariables, GuardsReachThem) {
  TwoParts parts{Placement()};
  const Outcome expected = trained(parts, one(), sink);
  CompileOptions guarded = two();
  guarded.guards = {.poison = true, .replay_every = 1};
  TwoParts placed(on_device(1));
  EXPECT_EQ(trained(placed, guarded, sink), expected);
}

TEST_F(PlacedVariables, AProgramForTheCpuIgnoresIt) {
  TwoParts parts{Placement()}, placed(on_device(1));
  EXPECT_EQ(trained(parts, {}, sink), trained(placed, {.further_devices = {cuda(1)}}, sink));
}

// A step that fails on either device, or on the host, commits on neither.
TEST_F(PlacedVariables, AFailedStepCommitsNothingAnywhere) {
  with_and_without_peers([&](bool) {
    for (Mode mode : kAllModes) {
      for (Placement where : {on_device(0), on_device(1), on_cpu}) {
        Graph g;
        const Value index = g.feed("i", i32, {1});
        const Variable here("here", Tensor({0.0f})), there("there", Tensor({0.0f}), on_device(1));
        const Value table = g.constant(Tensor({1.0f, 10.0f, 100.0f}));
        const Value picked = gather(table, index, 0, where);
        assign(here, here + picked);
        assign(there, there + sum(tanh(g.value(there)) * 0.0) + 1.0);  // does not depend on what fails
        Program program = compile(g, two());
        auto run = [&](const std::vector<std::int32_t>& indices) {
          const auto steps = static_cast<std::int64_t>(indices.size());
          program.write(index, Tensor({steps, 1}, indices));
          program.run(mode, {.steps = steps});
        };
        const std::string what = std::string(to_string(mode)) + " " + std::to_string(where.device);
        run({0, 1, 0});
        program.sync();
        run({1, 9, 2});
        const std::string message = message_of([&] { program.sync(); });
        EXPECT_TRUE(contains(message, "gather")) << what << ": " << message;
        EXPECT_TRUE(contains(message, "step 4")) << what << ": " << message;
        EXPECT_EQ(program.steps(), 4) << what;
        EXPECT_EQ(here.read().at(0), 22) << what;
        EXPECT_EQ(there.read().at(0), 4) << what;
        run({2});
        program.sync();
        EXPECT_EQ(here.read().at(0), 122) << what;
        EXPECT_EQ(there.read().at(0), 5) << what;
      }
    }
  });
}

TEST_F(PlacedVariables, ACheckpointGoesFromOneDeviceToTwoAndBack) {
  TwoParts whole{Placement()};
  const Outcome expected = trained(whole, one(), sink, 8);
  auto first_half = [](TwoParts& parts, const CompileOptions& options) {
    Program program = compile(parts.g, options);
    write_feed(program, parts.x, 8);
    program.run(sink, {.steps = 8});
    return snapshot(program);
  };
  auto second_half = [&](TwoParts& parts, const CompileOptions& options, const Checkpoint& from) {
    Program program = compile(parts.g, options);
    restore(program, from);
    write_feed(program, parts.x, 8, 6);
    program.run(sink, {.steps = 8});
    Outcome outcome = outcome_of(program);
    outcome["loss"] = expected.at("loss");  // of the second half alone
    return outcome;
  };
  const TemporaryDirectory directory;
  TwoParts a{Placement()}, b(on_device(1)), c(on_device(1)), d{Placement()};
  write_checkpoint(directory / "one", first_half(a, one()));
  EXPECT_EQ(second_half(b, two(), read_checkpoint(directory / "one")), expected);
  write_checkpoint(directory / "two", first_half(c, two()));
  EXPECT_EQ(second_half(d, one(), read_checkpoint(directory / "two")), expected);
}

TEST_F(PlacedVariables, AreReadAndWrittenBetweenRuns) {
  with_and_without_peers([&](bool peers) {
    for (Mode mode : kAllModes) {
      Graph g;
      // One that no step changes, used on each device and on the host, and one that is counted up.
      Variable steady("steady", Tensor({1.0f, 2.0f}), on_device(1));
      Variable count("count", Tensor({0.0f, 0.0f}), on_device(1));
      const Value value = g.value(steady);
      const Value here = add(value, 1.0, on_device), there = add(value, 2.0, on_device(1));
      g.output("y", add(add(here, there, on_device), add(value, 3.0, on_cpu), on_device));
      g.output("steady", g.value(steady));
      g.output("before", g.value(count));
      assign(count, count + value);
      Program program = compile(g, two());
      auto y = [&](float first) {
        for (int i = 0; i < 3; ++i) program.run(mode);
        EXPECT_EQ(program.output("y").at(0), 3 * first + 6) << to_string(mode) << ", peers " << peers;
        EXPECT_EQ(program.output("steady").at(0), first) << to_string(mode) << ", peers " << peers;
      };
      y(1);
      EXPECT_EQ(count.read().at(0), 3);
      EXPECT_EQ(program.output("before").at(0), 2);
      steady.write(Tensor({10.0f, 20.0f}));
      count.write(Tensor({100.0f, 0.0f}));
      y(10);
      EXPECT_EQ(count.read().at(0), 130);
      EXPECT_EQ(count.read().at(1), 60);
    }
  });
}

TEST_F(PlacedVariables, OutliveTheirProgramAndAreShared) {
  Variable w("w", Tensor({1.0f}), on_device(1));
  auto counts = [&](Graph& g) { assign(w, g.value(w) + 1.0); };
  {
    Graph g, h;
    counts(g), counts(h);
    Program a = compile(g, two()), b = compile(h, two());
    for (int i = 0; i < 4; ++i) a.run(sink), b.run(interactive);
    EXPECT_EQ(w.read().at(0), 9);
  }
  EXPECT_EQ(w.read().at(0), 9);
  w.write(Tensor({2.0f}));
  EXPECT_EQ(w.read().at(0), 2);
  Graph other;
  counts(other);
  Program elsewhere = compile(other, {.target = cuda(1), .further_devices = {cuda(0)}});
  const std::string message = message_of([&] { elsewhere.run(sink); });
  EXPECT_TRUE(contains(message, "lives on cuda:1, this program on cuda:0")) << message;
}

TEST_F(PlacedVariables, CanLiveInMemoryOfTheCallers) {
  Graph g;
  const Variable w("w", Tensor({0.0f, 0.0f}), on_device(1));
  assign(w, g.value(w) + 1.0);
  Program program = compile(g, two());
  void *here = nullptr, *there = nullptr;
  ASSERT_EQ(cudaMalloc(&here, 256), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&there, 256), cudaSuccess);
  const float values[] = {3, 4};
  ASSERT_EQ(cudaMemcpy(there, values, sizeof values, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_NE(message_of([&] { program.bind_memory(w, here, 256); }), "nothing was thrown") << "it is of another device";
  program.bind_memory(w, there, 256);
  program.run(sink, {.steps = 3});
  program.sync();
  EXPECT_EQ(w.read().at(1), 7);
  EXPECT_EQ(program.memory().further_devices.at(0).variables, 0u);
  ASSERT_EQ(cudaFree(here), cudaSuccess);
}

TEST_F(PlacedVariables, KeepTheirPlacementInAFile) {
  const TwoParts placed(on_device(1));
  const LoadedGraph loaded = testing::through_file(placed.g);
  const Plan plan = plan_for(loaded.graph);
  EXPECT_EQ(plan.explain(), plan_for(placed.g).explain());
  for (const Variable& variable : loaded.variables)
    EXPECT_EQ(device_of(plan, variable), variable.name().starts_with("w1") || variable.name() == "adamw.lr" ? 0 : 1)
        << variable.name();
}

TEST_F(PlacedVariables, AreCountedWhereTheyLive) {
  TwoParts parts{Placement()}, placed(on_device(1));
  Program plain = compile(parts.g, two()), program = compile(placed.g, two());
  const MemoryReport before = plain.memory(), report = program.memory();
  ASSERT_EQ(report.further_devices.size(), 1u);
  const FurtherMemory& there = report.further_devices[0];
  EXPECT_EQ(there.device, cuda(1));
  EXPECT_EQ(there.variables, 8 * 256u) << "w2, b2, seen, the average and two moments of each parameter";
  EXPECT_EQ(report.variables + there.variables, before.variables);
  EXPECT_EQ(before.further_devices.at(0).variables, 0u);
  EXPECT_GT(there.arena, 0u);
  EXPECT_EQ(report.further, there.bytes());
  EXPECT_TRUE(contains(to_string(report), "on cuda:1: ")) << to_string(report);
  EXPECT_TRUE(contains(to_string(report), "2.0 KiB of Variables")) << to_string(report);
}

// Asks for more memory than there is, wherever it runs: its bodies never do.
void no_body(const CpuArgs&) {}
void no_cuda_body(CudaArgs&) {}
const OpDef hungry{.name = "hungry",
                   .infer = testing::infer_like_first,
                   .prepare =
                       [](const PrepareArgs&) {
                         return Prepared{nullptr, std::size_t{1} << 60};
                       },
                   .bodies = {no_body, no_cuda_body}};

TEST_F(PlacedVariables, TheErrorForNoMemoryNamesWhatIsFullAndTheVariablesThere) {
  auto message = [](Placement on) {
    Graph g;
    const Value more = sum(emit(hungry, {g.feed("x", f32, {64})}, {}, on)[0]);
    for (int size : {4, 1024, 2048, 512}) {
      const Variable here("w" + std::to_string(size), Tensor(f32, {size}));
      const Variable there("there" + std::to_string(size), Tensor(f32, {size}), on_device(1));
      assign(here, here + more);
      assign(there, there + more);
    }
    return message_of([&] { compile(g, two()).bind(); });
  };
  const std::string here = message(on_device), there = message(on_device(1)), host = message(on_cpu);
  EXPECT_TRUE(contains(here, ": memory of cuda:0: no room for ")) << here;
  EXPECT_TRUE(contains(there, ": memory of cuda:1: no room for ")) << there;
  EXPECT_TRUE(contains(host, ": memory of the host: no room for ")) << host;
  for (const std::string& text : {here, there}) {
    EXPECT_TRUE(contains(text, "; cuda:0 needs ")) << text;
    EXPECT_TRUE(contains(text, "; cuda:1 needs ")) << text;
    EXPECT_TRUE(contains(text, " are free there")) << text;
  }
  EXPECT_TRUE(contains(here,
                       "use smaller batches, or end other programs on cuda:0, or let Variables live on a further "
                       "device, by the placement on_device(1); the largest are \"w2048\" 8.0 KiB, \"w1024\" 4.0 KiB, "
                       "\"w512\" 2.0 KiB"))
      << here;
  EXPECT_TRUE(contains(there,
                       "use smaller batches, or end other programs on cuda:1, or let Variables live on the target, by "
                       "the placement on_device; the largest are \"there2048\" 8.0 KiB, \"there1024\" 4.0 KiB, "
                       "\"there512\" 2.0 KiB"))
      << there;
  EXPECT_TRUE(contains(host, "of host memory; remedy: ")) << host;
  EXPECT_TRUE(contains(host, "give these ops a CUDA body, or end other programs on this machine")) << host;
  EXPECT_FALSE(contains(host, "let Variables live")) << host;
}

}  // namespace
}  // namespace graphsink::cuda_placed_variables_test
