// One graph on several CUDA devices: placements, copies between devices, and failures on a further device.
#include <gtest/gtest.h>

#include <graphsink/graphsink.h>

#include "api/plan_of.h"
#include "cuda_device_fixture.h"
#include "ir/system_ops.h"
#include "passes/passes.h"
#include "test_ops.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

namespace graphsink::cuda_several_devices_test {
namespace {

using testing::contains;
using testing::message_of;

// Returns options for a machine with a second device, which can access the memory of `peers`.
PlanOptions two_devices(std::vector<int> peers = {0}) {
  Target second = Target::cuda13();
  second.id = cuda(1);
  second.peers = std::move(peers);
  return {.further_targets = {second}};
}

Plan plan_for(const Graph& g, const PlanOptions& options, std::vector<int> peers = {1}) {
  Target target = Target::cuda13();
  target.peers = std::move(peers);
  return make_plan(g, target, system_ops(), {}, options);
}

int device_of(const Plan& plan, std::string_view op) {
  for (const PlanNode& node : plan.nodes)
    if (node.op->name == op) return node.device;
  ADD_FAILURE() << "no " << op;
  return -1;
}

TEST(SeveralDevicesPlan, LabelsDecideAndNeighboursFollow) {
  Graph g;
  Value x = g.input("x", f32, {1000});
  g.output("y", sum(exp(tanh(x, on_device(1)))));
  Plan plan = plan_for(g, two_devices());
  EXPECT_EQ(device_of(plan, "tanh"), 1);
  EXPECT_EQ(device_of(plan, "exp"), 1);
  EXPECT_EQ(device_of(plan, "sum"), 1) << "4 bytes cross instead of 4000";
  EXPECT_TRUE(sinks_whole(plan));
  EXPECT_FALSE(plan.loop_over_steps);
  Plan kept = plan_for(g, [] {
    PlanOptions options = two_devices();
    options.default_placement = on_device;
    return options;
  }());
  EXPECT_EQ(device_of(kept, "exp"), 0);
}

bool is_on_the_host(const Buffer& buffer) {
  return buffer.storage == Storage::host_arena || buffer.storage == Storage::invariant ||
         buffer.storage == Storage::host_constant;
}

TEST(SeveralDevicesPlan, ANodeTouchesMemoryOfItsDeviceAlone) {
  Graph g;
  Value x = g.input("x", f32, {8});
  Variable w("w", Tensor(f32, {8}));
  Value a = mul(x, w, on_device(1)) + 2.0;
  Value b = tanh(a, on_device), c = relu(a, on_cpu);
  Value d = add(b, c, on_device(1));
  assign(w, sub(w, d, on_device));
  g.output("d", d);
  for (const std::vector<int>& peers : {std::vector<int>{1}, std::vector<int>{}}) {
    Plan plan = plan_for(g, two_devices(peers.empty() ? std::vector<int>{} : std::vector<int>{0}), peers);
    for (const PlanNode& node : plan.nodes) {
      for (int buffer : node.operands) {
        if (buffer < 0) continue;
        const Buffer& b = plan.buffers[static_cast<std::size_t>(buffer)];
        bool is_host = is_on_the_host(b);
        EXPECT_EQ(is_host, node.on_host) << node.op->name;
        if (!is_host) {
          EXPECT_EQ(b.device, node.device) << node.op->name;
        }
      }
    }
    int direct = 0;
    for (const Task& task : plan.tasks_of(0)) {
      EXPECT_EQ(plan.stream_devices.at(static_cast<std::size_t>(task.stream)), device_of(plan, task));
      if (task.kind != TaskKind::copy) continue;
      const Buffer &source = plan.buffers[static_cast<std::size_t>(task.source)],
                   &destination = plan.buffers[static_cast<std::size_t>(task.destination)];
      bool touches_host = is_on_the_host(source) || is_on_the_host(destination);
      direct += !touches_host && source.device != destination.device;
    }
    EXPECT_EQ(direct >= 5, !peers.empty()) << "x, w, a, d and the step block, to and fro: " << direct;
    EXPECT_EQ(direct == 0, peers.empty());
  }
}

TEST(SeveralDevicesPlan, SaysWhichPlacementsItCannotServe) {
  auto message = [](const std::function<Value(Value)>& build, const PlanOptions& options) {
    Graph g;
    g.output("y", build(g.input("x", f32, {4})));
    return message_of([&] { plan_for(g, options); });
  };
  auto on = [](int device) { return [=](Value x) { return tanh(x, on_device(device)); }; };
  EXPECT_TRUE(contains(message(on(1), {}), "no further device"));
  EXPECT_TRUE(contains(message(on(2), two_devices()), "only 1 further"));
  EXPECT_TRUE(contains(message(on(2), two_devices()), "further_devices"));
  auto in_branch = [](Value x) {
    return if_(
        sum(x) > 0.0, [&] { return tanh(x, on_device(1)); }, [&] { return x; });
  };
  EXPECT_TRUE(contains(message(in_branch, two_devices()), "stays on one device"));
  auto cpu_only = [](Value x) { return emit(testing::cpu_plus_one, {x}, {}, on_device(1))[0]; };
  EXPECT_TRUE(contains(message(cpu_only, two_devices()), "no body for this device"));
  PlanOptions many;
  many.further_targets.resize(kMaxFurtherTargets + 1, Target::cuda13());
  EXPECT_TRUE(contains(message(on(0), many), "further devices"));
}

// --- programs

class SeveralDevices : public ::testing::Test {
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
  static CompileOptions options() { return {.target = cuda(0), .further_devices = {cuda(1)}}; }
  static CompileOptions three_devices() { return {.target = cuda(0), .further_devices = {cuda(1), cuda(2)}}; }
  // A real machine has fixed links. On the software device the check also runs without links.
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

// A small training step with work on both devices and on the host, including dropout.
struct Model {
  explicit Model(Placement second, Placement on_the_host) {
    x = g.feed("x", f32, {16, 8});
    Value h = relu(matmul(x, w1, {}, second), second);
    h = dropout(h, 0.25, second);
    Value side = tanh(h, on_the_host);
    Value loss = mean(square(matmul(add(h, side, second), w2)));
    g.record("loss", loss);
    g.output("h", h);
    sgd(loss, {w1, w2}, {.lr = 0.05f});
  }
  static Value square(const Value& v) { return v * v; }

  Graph g;
  Value x;
  Variable w1{"w1", Tensor::kaiming({8, 32}, 1)}, w2{"w2", Tensor::kaiming({32, 4}, 2)};
};

std::vector<float> values_of(const Tensor& tensor) { return {tensor.as<float>().begin(), tensor.as<float>().end()}; }

struct Outcome {
  std::vector<double> losses;
  std::vector<float> w1, w2, h;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome train(Model& model, const CompileOptions& options, Mode mode, std::int64_t steps = 6) {
  Program program = compile(model.g, options);
  std::vector<float> x(static_cast<std::size_t>(steps) * 16 * 8);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 23) / 11.0f - 1.0f;
  program.write(model.x, Tensor({steps, 16, 8}, x));
  program.run(mode, {.steps = steps - 2});
  program.run(mode, {.steps = 2});
  Outcome outcome;
  outcome.losses = program.records<double>("loss");
  for (auto [tensor, values] : {std::pair(model.w1.read(), &outcome.w1), std::pair(model.w2.read(), &outcome.w2),
                                std::pair(program.output("h"), &outcome.h)})
    *values = values_of(tensor);
  EXPECT_EQ(program.counters().fallbacks, 0u);
  return outcome;
}

TEST_F(SeveralDevices, AllModesAgreeWithOneDevice) {
  Model one(on_device, on_device);
  Outcome expected = train(one, {.target = cuda(0)}, interactive);
  with_and_without_peers([&](bool peers) {
    for (Mode mode : kAllModes) {
      Model two(on_device(1), on_device);
      EXPECT_EQ(train(two, options(), mode), expected) << to_string(mode) << ", peers " << peers;
    }
  });
}

TEST_F(SeveralDevices, TheHostTakesPartToo) {
  Model one(on_device, on_cpu);
  Outcome expected = train(one, {.target = cuda(0)}, interactive);
  for (Mode mode : kAllModes) {
    Model two(on_device(1), on_cpu);
    EXPECT_EQ(train(two, options(), mode), expected) << to_string(mode);
  }
}

// A further device keeps the number of the step in its own step block, which is copied to it first.
TEST_F(SeveralDevices, TheHostReadsTheNumberOfTheStepFromThere) {
  for (Mode mode : kAllModes) {
    Graph g;
    Variable seen("seen", Tensor(f32, {2}));
    Value here = reshape(g.step(), {1}, on_device), there = reshape(g.step(), {1}, on_device(1));
    assign(seen, cast(concat({here, there}, 0, on_cpu), f32));
    Program program = compile(g, options());
    for (int i = 0; i < 4; ++i) program.run(mode);
    program.sync();
    EXPECT_EQ(values_of(seen.read()), (std::vector<float>{3, 3})) << to_string(mode);
  }
}

TEST_F(SeveralDevices, ThreeDevicesAgreeWithOne) {
  if (cuda_device_count() < 3) GTEST_SKIP() << "needs three CUDA devices";
  auto outcome = [](Placement second, Placement third, const CompileOptions& options, Mode mode) {
    Graph g;
    Value x = g.feed("x", f32, {8});
    Variable w("w", Tensor::uniform({8}, 3, -1.0f, 1.0f));
    Value there = tanh(mul(x, w, second), second);
    Value farther = add(sin(there, third), random_uniform(g, f32, {8}, 0, 1, third), third);
    assign(w, sub(w, mul(farther, there, second), on_device));
    g.record("loss", sum(farther, {}, {}, on_device));
    Program program = compile(g, options);
    program.write(x, Tensor::uniform({4, 8}, 5, -1.0f, 1.0f));
    program.run(mode, {.steps = 4});
    std::vector<double> results = program.records<double>("loss");
    for (float value : values_of(w.read())) results.push_back(value);
    return results;
  };
  std::vector<double> expected = outcome(on_device, on_device, {.target = cuda(0)}, interactive);
  with_and_without_peers([&](bool peers) {
    for (Mode mode : kAllModes)
      EXPECT_EQ(outcome(on_device(1), on_device(2), three_devices(), mode), expected)
          << to_string(mode) << ", peers " << peers;
  });
}

TEST_F(SeveralDevices, FurtherDevicesReachEachOther) {
  if (cuda_device_count() < 3) GTEST_SKIP() << "needs three CUDA devices";
  with_and_without_peers([&](bool peers) {
    Graph g;
    g.output("y", tanh(exp(g.feed("x", f32, {8}), on_device(1)), on_device(2)));
    Plan plan = plan_of(compile(g, three_devices()));
    EXPECT_EQ(plan.host_arena_bytes == 0, peers) << plan.explain();
  });
}

TEST_F(SeveralDevices, AStepIsOneLaunch) {
  Model model(on_device(1), on_device);
  Program program = compile(model.g, options());
  program.write(model.x, Tensor({16, 8}, std::vector<float>(128, 0.5f)));
  program.run(sink);
  program.sync();
  Counters before = program.counters();
  program.run(sink, {.steps = 5});
  program.sync();
  EXPECT_EQ(program.counters().graph_launches - before.graph_launches, 5u);
  ASSERT_TRUE(program.captured());
  EXPECT_EQ(program.captured()->host_nodes, 0);
  EXPECT_NE(program.explain().find("cuda:1"), std::string::npos);
}

TEST_F(SeveralDevices, WhatNoStepChangesIsCopiedWhenItWasWritten) {
  with_and_without_peers([&](bool peers) {
    for (Mode mode : kAllModes) {
      Graph g;
      Value x = g.input("x", f32, {2});
      Variable w("w", Tensor({1.0f, 2.0f}));
      g.output("y", mul(add(x, 1.0, on_device(1)), w, on_device(1)));
      Program program = compile(g, options());
      auto copies_of_a_run = [&](float first, float second) {
        std::uint64_t before = program.counters().copies;
        program.run(mode);
        std::uint64_t copies = program.counters().copies - before;
        EXPECT_EQ(values_of(program.output("y")), (std::vector{first, second}))
            << to_string(mode) << ", peers " << peers;
        return copies;
      };
      program.write(x, std::vector<float>{1, 2});
      copies_of_a_run(2, 6);
      copies_of_a_run(2, 6);  // warms up: now everything is captured
      // Without peer access, each copy goes through the host.
      std::uint64_t steady = copies_of_a_run(2, 6), each = peers ? 1 : 2;
      w.write(Tensor({10.0f, 20.0f}));
      EXPECT_EQ(copies_of_a_run(20, 60) - steady, each);
      program.write(x, std::vector<float>{4, 5});
      EXPECT_EQ(copies_of_a_run(50, 120) - steady, each);
      w.write(Tensor({1.0f, 1.0f}));
      program.write(x, std::vector<float>{0, 1});
      EXPECT_EQ(copies_of_a_run(1, 2) - steady, 2 * each);
      EXPECT_EQ(copies_of_a_run(1, 2), steady);
    }
  });
}

TEST_F(SeveralDevices, AFailureOnTheSecondCommitsNothing) {
  for (Mode mode : kAllModes) {
#ifdef GRAPHSINK_EMULATED
    emu::set_peer_access(mode == sink);  // the other modes use the harder way, without links
#endif
    Graph g;
    Value indices = g.input("i", i32, {2});
    // The further device computes something before the host takes its turn.
    assign(Variable("early", Tensor({0.0f, 0.0f})), tanh(cast(indices, f32), on_device(1)));
    Value from_host = minimum(indices, 1000, on_cpu);
    Variable w("w", Tensor({1.0f, 2.0f, 3.0f}));
    Value picked = gather(g.constant(Tensor({10.0f, 20.0f, 30.0f})), from_host, 0, on_device(1));
    assign(w, w + sum(picked));
    Program program = compile(g, options());
    program.write(indices, std::vector<std::int32_t>{0, 1});
    program.run(mode);
    program.sync();
    program.write(indices, std::vector<std::int32_t>{0, 7});
    program.run(mode);
    std::string message = message_of([&] { program.sync(); });
    EXPECT_TRUE(contains(message, "gather")) << message;
    EXPECT_TRUE(contains(message, "step 1")) << message;
    EXPECT_EQ(w.read().at(0), 31);
    program.write(indices, std::vector<std::int32_t>{1, 2});
    program.run(mode);
    program.sync();
    EXPECT_EQ(w.read().at(0), 81);
  }
}

TEST_F(SeveralDevices, CheckFiniteLooksEverywhere) {
  Graph g;
  Value x = g.input("x", f32, {2});
  g.output("y", sum(log(x, on_device(1))));
  CompileOptions checked = options();
  checked.check_finite = true;
  Program program = compile(g, checked);
  program.write(x, std::vector<float>{1, -1});
  program.run(sink);
  std::string message = message_of([&] { program.sync(); });
  EXPECT_TRUE(contains(message, ": log: ")) << message;
}

TEST_F(SeveralDevices, GuardsReachThem) {
  Model one(on_device, on_device);
  Outcome expected = train(one, {.target = cuda(0)}, sink);
  CompileOptions guarded = options();
  guarded.guards = {.poison = true, .replay_every = 1};
  Model two(on_device(1), on_device);
  EXPECT_EQ(train(two, guarded, sink), expected);
}

#ifdef GRAPHSINK_EMULATED
// In whatever order the devices start their work, the poison must not overwrite what a step has written.
TEST_F(SeveralDevices, ArePoisonedBeforeTheStep) {
  auto weights = [](Placement second, const CompileOptions& options) {
    Model model(second, on_device);
    Program program = compile(model.g, options);
    program.write(model.x, Tensor::uniform({1, 16, 8}, 5));
    for (int step = 0; step < 30; ++step) program.run(sink);
    return values_of(model.w1.read());
  };
  std::vector<float> expected = weights(on_device, {.target = cuda(0)});
  CompileOptions poisoned = options();
  poisoned.guards.poison = true;
  for (unsigned seed = 0; seed < 8; ++seed) {
    emu::set_seed(seed);
    EXPECT_EQ(weights(on_device(1), poisoned), expected) << seed;
  }
}
#endif

TEST_F(SeveralDevices, RefusesDevicesThatCannotServe) {
  Graph g;
  g.output("y", tanh(g.input("x", f32, {2})));
  auto message = [&](std::vector<DeviceId> further) {
    return message_of([&] { compile(g, {.target = cuda(0), .further_devices = std::move(further)}); });
  };
  EXPECT_TRUE(contains(message({cuda(9)}), "CUDA devices"));
  EXPECT_TRUE(contains(message({cuda(0)}), "each once"));
  for (DeviceId id : {cuda(0), cuda(9)}) EXPECT_TRUE(contains(message({id}), "cuda_several_devices_test.cpp:"));
  EXPECT_TRUE(contains(message({cpu()}), "CUDA devices"));
}

TEST(SeveralDevicesOnCpu, LabelsChangeNothing) {
  Model plain({}, {}), placed(on_device(1), on_cpu);
  EXPECT_EQ(train(plain, {}, sink), train(placed, {.further_devices = {cuda(1)}}, sink));
}

}  // namespace
}  // namespace graphsink::cuda_several_devices_test
