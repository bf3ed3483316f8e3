// Random graphs (random_graph/) in every mode: within a device the same bits in all of them, on all devices the same
// types and finite values. The environment's GS_GRAPH_SEED=N runs one graph and prints it; GS_FULL=1 runs 20,000;
// GS_GRAPHS=N runs N, a multiple of 10; GS_SURVEY=1 lists all failures, and
// shrinks none.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <optional>

#include "api/plan_of.h"
#include "counts.h"
#include "differential.h"
#include "ir/graph_data.h"
#include "ir/system_ops.h"
#include "passes/passes.h"
#include "temporary_directory.h"
#include "test_ops.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

namespace graphsink::testing::differential_test {
namespace {

constexpr std::uint64_t kBaseSeed = 20'000'000;
constexpr int kParts = 10;
constexpr int kCounted = 500;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kGraphs = 50, kAllGraphs = 500;
#else
constexpr int kGraphs = kCounted, kAllGraphs = 20'000;
#endif

int graphs() {
  if (const char* number = std::getenv("GS_GRAPHS")) return std::atoi(number);
  const char* full = std::getenv("GS_FULL");
  return full && std::string_view(full) == "1" ? kAllGraphs : kGraphs;
}

Recipe recipe_of(std::uint64_t seed) { return widen(random_recipe(seed), seed); }
std::uint64_t seed_of(int graph) { return kBaseSeed + static_cast<std::uint64_t>(graph); }

// For every other graph the software device's two cannot reach each other's memory; an error that ended them is over.
// For one of 100 graphs there is a compiler, which makes kernels of groups of element-wise ops; it takes a third of a
// second for each. If the environment names a compiler, all graphs have it.
void renew_device([[maybe_unused]] std::uint64_t seed) {
#ifdef GRAPHSINK_EMULATED
  emu::reset();
  emu::set_peer_access(seed % 2 == 0);
  if (!std::getenv("GS_EMU_COMPILER")) emu::set_compiler(seed % 100 == 1 ? GRAPHSINK_HOST_COMPILER : "");
#endif
}

// After some errors a GPU refuses all work of the process.
bool all_devices_work() {
  try {
    for (DeviceId device : devices()) {
      Graph g;
      g.output("y", g.constant(Tensor({1.0f})) + 1.0);
      Program program = compile(g, {.target = device});
      program.run(interactive);
      program.sync();
    }
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// FNV-1a over the bits of what a graph makes.
class Hash {
 public:
  // Records of several numbers are left out, because the hashes of earlier commits do not have them.
  void add(const Building& building, const Trace& trace) {
    for (const auto& [step, outputs] : trace.outputs) add(outputs);
    add(trace.variables);
    for (std::size_t i = 0; i < trace.records.size(); ++i) {
      const std::vector<double>& values = trace.records[i];
      if (!building.records[i].starts_with(kVectorRecord)) add(values.data(), values.size() * sizeof(double));
    }
    add(&trace.steps, sizeof(trace.steps));
  }
  std::uint64_t value() const { return value_; }

 private:
  void add(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) add(tensor.data(), tensor.bytes());
  }
  void add(const void* data, std::size_t bytes) {
    const auto* byte = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) value_ = (value_ ^ byte[i]) * 0x100000001b3;
  }
  std::uint64_t value_ = 0xcbf29ce484222325;
};

std::optional<Failure> failure_of(std::uint64_t seed, const Recipe& recipe) {
  renew_device(seed);
  Hash hash;
  const Compare compare = [&](const Building& building, const Trace& a, const Trace& b) {
    hash.add(building, a);
    return difference(building, a, b);
  };
  std::optional<Failure> failure = check(recipe, compare);
  // For tests/behaviour.py. The file is opened for each graph, because the tests are several processes.
  if (const char* file = std::getenv("GS_HASHES"))
    std::ofstream(file, std::ios::app) << seed << ' ' << std::hex << hash.value() << '\n';
  // Said at once, because shrinking takes long and may end the process.
  if (failure) std::cout << "GS_GRAPH_SEED=" << seed << ", " << failure->kind << ": " << failure->text << std::endl;
  return failure;
}

void check_seed(std::uint64_t seed, const Recipe& recipe) {
  const std::optional<Failure> failure = failure_of(seed, recipe);
  if (!failure) return;
  renew_device(seed);
  if (!all_devices_work()) FAIL() << "GS_GRAPH_SEED=" << seed << ": a device is lost, so nothing can be shrunk";
  std::string text = failure->text;
  Recipe small = shrink(recipe, [&](const Recipe& candidate) {
    renew_device(seed);
    auto again = check(candidate);
    if (!again || again->kind != failure->kind) return false;
    text = again->text;
    return true;
  });
  ADD_FAILURE() << "GS_GRAPH_SEED=" << seed << ", " << failure->kind << ": " << failure->text << "\nshrunk to\n"
                << to_string(small) << failure->kind << ": " << text;
}

#ifdef GRAPHSINK_EMULATED
class TwoDevices : public ::testing::Environment {
 public:
  void SetUp() override {
    emu::set_device_count(2);
    setenv("GRAPHSINK_KERNEL_CACHE", kernels_.path().c_str(), 1);
  }

 private:
  TemporaryDirectory kernels_;
};
[[maybe_unused]] const auto* const two_devices = ::testing::AddGlobalTestEnvironment(new TwoDevices);
#endif

class Differential : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Parts, Differential, ::testing::Range(0, kParts));

TEST_P(Differential, RandomGraphsAreTheSameInEveryMode) {
  if (const char* one = std::getenv("GS_GRAPH_SEED")) {
    std::uint64_t seed = std::strtoull(one, nullptr, 10);
    if (GetParam() == 0) std::cout << to_string(recipe_of(seed));
    if (GetParam() == 0) check_seed(seed, recipe_of(seed));
    return;
  }
  int each = graphs() / kParts;
  std::uint64_t first = kBaseSeed + static_cast<std::uint64_t>(GetParam() * each);
  std::cout << "GS_GRAPH_SEED " << first << " to " << first + static_cast<std::uint64_t>(each) - 1 << '\n';
  const bool is_survey = std::getenv("GS_SURVEY") != nullptr;
  int failures = 0;
  for (int i = 0; i < each && !HasFailure(); ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    const Recipe recipe = recipe_of(seed);
    is_survey ? void(failures += failure_of(seed, recipe).has_value()) : check_seed(seed, recipe);
  }
  EXPECT_EQ(failures, 0);
}

// Among 20,000 graphs these once differed, or failed, on the software device.
TEST(RandomGraph, ThoseThatOnceFailed) {
  for (std::uint64_t seed : {20000517, 20011847, 20012338,  // a later step said which size a result has
                             20002522, 20008459, 20014092,  // a node launched nothing
                             20004539})                     // a stream relied on a wait of another launch
    check_seed(seed, random_recipe(seed));
  renew_device(kBaseSeed);  // whose devices reach each other's memory, as the next tests expect
}

// The graphs of the test above hold all that it is meant to try.
TEST(RandomGraph, EveryKindOccurs) {
  Counts counts;
  for (int i = 0; i < kCounted; ++i) {
    Building building(recipe_of(seed_of(i)));
    count(building, counts);
    for (DeviceId device : devices())
      count(plan_of(compile(building.graph, {.target = device, .further_devices = further_devices(device)})), counts);
  }
  for (const auto& [name, n] : counts) std::cout << std::setw(8) << n << "  " << name << '\n';
  for (const std::string& name : counted(devices().size() > 1, cuda_device_count() > 1))
    EXPECT_GT(counts[name], 0) << name;
  if (devices().size() > 1) {
    EXPECT_GE(counts["plan: of three islands or more"], 3 * kCounted / 10);
  }
}

// Whatever can throw or shows outside of the program is done before the first store.
TEST(RandomGraph, NothingOfTheHostIsInTheCommit) {
  int commits = 0, effects = 0;
  for (int i = 0; i < kCounted; ++i) {
    Building building(recipe_of(seed_of(i)));
    for (const Target& target : {Target::host(), Target::cuda13()}) {
      PlanOptions options;
      if (target.separate_memory) options.further_targets = {Target::cuda13()};
      Plan plan = make_plan(building.graph, target, system_ops(), {}, options);
      for (int id : plan.sequences[0].tasks) {
        const Task& task = plan.tasks[static_cast<std::size_t>(id)];
        bool is_call = task.kind == TaskKind::call;
        const PlanNode* node = is_call ? &plan.nodes[static_cast<std::size_t>(task.node)] : nullptr;
        bool has_effect = node && node->id >= 0 && node->op->traits.host_effect;
        effects += has_effect;
        if (id < first_commit_task(plan)) {
          EXPECT_FALSE(node && writes_variables(*node->op, static_cast<std::size_t>(node->inputs)));
          continue;
        }
        ++commits;
        EXPECT_TRUE(node) << "GS_GRAPH_SEED=" << seed_of(i);
        EXPECT_FALSE(has_effect || (node && node->on_host)) << "GS_GRAPH_SEED=" << seed_of(i);
      }
    }
  }
  EXPECT_GT(commits, kCounted);
  EXPECT_GT(effects, 0);
}

// In the schedules above that ask for it.
TEST(RandomGraph, KernelsAreLaunchedProgrammatically) {
  std::size_t all = 0, in_bodies = 0;
  for (int i = 0; i < kCounted; ++i) {
    Building building(recipe_of(seed_of(i)));
    Plan plan = make_plan(building.graph, Target::cuda13(), system_ops(), {},
                          {.programmatic_launch = true, .further_targets = {Target::cuda13()}});
    all += plan.programmatic.nodes;
    for (std::size_t body = 1; body < plan.sequences.size(); ++body)
      for (const Task& task : plan.tasks_of(static_cast<int>(body)))
        in_bodies += task.kind == TaskKind::call &&
                     plan.nodes[static_cast<std::size_t>(task.node)].programmatic == ProgrammaticLaunch::all;
  }
  EXPECT_GT(all, 5u * kCounted);
  EXPECT_GT(in_bodies, kCounted / 2u);
}

bool holds(const Building& building, std::string_view kind) {
  auto found = building.counts.find("kind: " + std::string(kind));
  return found != building.counts.end() && found->second > 0;
}

// With a comparison that does not like one kind of op, nothing but this op remains.
TEST(RandomGraph, FailuresAreShrunk) {
  int shrunk = 0;
  for (std::string kind : {"top_k", "swap", "while_"}) {
    SCOPED_TRACE(kind);
    Compare compare = [&](const Building& building, const Trace&, const Trace&) {
      return holds(building, kind) ? "holds " + kind : "";
    };
    for (int i = 0; i < 12; ++i) {
      Recipe recipe = random_recipe(seed_of(i));
      std::optional<Failure> failure = check(recipe, compare);
      if (!holds(Building(recipe), kind)) {
        EXPECT_FALSE(failure);
        continue;
      }
      ASSERT_TRUE(failure);
      Recipe small = shrink(recipe, [&](const Recipe& candidate) { return check(candidate, compare).has_value(); });
      EXPECT_TRUE(check(small, compare));
      EXPECT_EQ(small.entries.size(), 1u) << to_string(small);
      EXPECT_EQ(small.steps, 1) << to_string(small);
      ++shrunk;
    }
  }
  EXPECT_GT(shrunk, 3);
}

}  // namespace
}  // namespace graphsink::testing::differential_test
