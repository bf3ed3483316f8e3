// Steps of the CPU that several threads share: results are those of one thread, bit for bit, whatever is shared.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>

#include "api/plan_of.h"
#include "tiles_cases.h"

namespace graphsink::tiles_test {
namespace {

struct Results {
  std::map<std::string, Tensor> outputs;
  std::vector<Tensor> variables;
  std::uint64_t shared = 0;  // nodes of a launch, or of all steps that were issued op by op
};

// Three steps, in mode `sink` the last two of them as a launch. `variables`: of the graph that `build` makes.
Results run(const Build& build, Mode mode, int threads, bool share_all) {
  Graph g;
  build(g);
  Program program = compile(g, {.target = cpu(), .tuning = {.threads = threads}, .guards = {.share_all = share_all}});
  program.run(mode);
  program.run(mode, {.steps = 2});
  Results results;
  for (const PlanOutput& output : plan_of(program).outputs)
    results.outputs.emplace(output.name, program.output(output.name));
  for (const Variable& v : plan_of(program).variables) results.variables.push_back(v.read());
  results.shared = program.counters().shared;
  if (auto captured = program.captured(LaunchOf::several_steps))
    results.shared += static_cast<std::uint64_t>(captured->shared);
  return results;
}

void expect_same(const Results& a, const Results& b) {
  ASSERT_EQ(a.outputs.size(), b.outputs.size());
  for (const auto& [name, tensor] : a.outputs) {
    const Tensor& other = b.outputs.at(name);
    ASSERT_EQ(tensor.type(), other.type());
    EXPECT_EQ(std::memcmp(tensor.data(), other.data(), tensor.bytes()), 0) << name;
  }
  ASSERT_EQ(a.variables.size(), b.variables.size());
  for (std::size_t i = 0; i < a.variables.size(); ++i)
    EXPECT_EQ(std::memcmp(a.variables[i].data(), b.variables[i].data(), a.variables[i].bytes()), 0) << i;
}

class Shared : public ::testing::TestWithParam<Case> {};

TEST_P(Shared, ResultsAreThoseOfOneThread) {
  const Results alone = run(GetParam().build, sink, 1, false);
  EXPECT_EQ(alone.shared, 0u);
  for (int threads : {2, 3, 8}) {
    for (bool share_all : {false, true}) {
      SCOPED_TRACE(std::to_string(threads) + (share_all ? " threads that share all" : " threads"));
      const Results shared = run(GetParam().build, sink, threads, share_all);
      EXPECT_GT(shared.shared, 0u);
      expect_same(alone, shared);
    }
  }
}

TEST_P(Shared, ResultsOfStreamsAreThoseOfOneThread) {
  const Results alone = run(GetParam().build, interactive_serial, 8, true);
  EXPECT_EQ(alone.shared, 0u);
  for (int threads : {1, 2, 3, 8}) {
    for (bool share_all : {false, true}) {
      SCOPED_TRACE(std::to_string(threads) + (share_all ? " threads that share all" : " threads"));
      const Results shared = run(GetParam().build, interactive_parallel, threads, share_all);
      if (threads == 1) {
        EXPECT_EQ(shared.shared, 0u);
      } else if (share_all) {
        EXPECT_GT(shared.shared, 0u);
        if (GetParam().nodes > 0) {
          EXPECT_EQ(shared.shared, 3 * GetParam().nodes);
        }
      }
      expect_same(alone, shared);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Launches, Shared, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(SharedLaunches, ThatAreTooSmallStayOnOneThread) {
  auto build = [](Graph& g) {
    Value x = variable(g, "x", {64}, 1);
    g.output("y", cumsum(x, 0));
    g.output("z", sort(x, 0).values);
  };
  EXPECT_EQ(run(build, sink, 4, false).shared, 0u);
  EXPECT_GT(run(build, sink, 4, true).shared, 0u);
}

// An op of one tile for each element. What the tiles do is a function of the test.
using Tile = std::function<void(float)>;

void infer_observed(InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.in(0).dtype, a.in(0).shape);
}
std::int64_t count_observed(const BodyArgs& a) { return a.in_type(0).shape.size(); }
void run_observed(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  for (std::int64_t i = first; i < end; ++i) {
    const float x = a.in<float>(0)[i];
    (*a.attrs<const Tile*>())(x);
    a.out<float>(0)[i] = x + 1;
  }
}
const OpDef observed{.name = "observed", .infer = infer_observed, .bodies = {Tiles{count_observed, run_observed}}};

// A state that each step adds 1 to, and an op of 64 tiles.
struct Observed {
  Graph g;
  Variable state{"state", Tensor::full(f32, {}, 1)};
  Value x = g.input("x", f32, {64});

  Program compile(const Tile& tile, int threads, bool share_all = true) {
    g.output("y", emit(observed, {x}, &tile)[0]);
    assign(state, g.value(state) + 1.0);
    Program program =
        graphsink::compile(g, {.target = cpu(), .tuning = {.threads = threads}, .guards = {.share_all = share_all}});
    program.write(x, std::vector<float>(64, 1));
    return program;
  }
};

// Now and then a launch shares nothing, to find out whether that is faster; but not if all must be shared. A state that
// is doubled shows that each step ran once, whoever ran it.
TEST(SharedLaunches, AreMeasured) {
  constexpr std::int64_t kElements = 80000;  // enough to be shared
  for (bool share_all : {false, true}) {
    std::mutex mutex;
    std::set<std::thread::id> ids;
    const Tile take_id_at_ends = [&](float x) {
      if (x != 0 && x != kElements - 1) return;
      std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    };
    std::vector<float> elements(kElements);
    std::iota(elements.begin(), elements.end(), 0.0f);
    Graph g;
    Variable state("state", Tensor::full(f32, {1}, 1));
    Value x = g.value(Variable("x", Tensor({kElements}, elements)));
    g.output("y", emit(observed, {x}, &take_id_at_ends)[0]);
    assign(state, g.value(state) * 2.0);
    Program program = compile(g, {.target = cpu(), .tuning = {.threads = 2}, .guards = {.share_all = share_all}});
    program.run(sink);
    program.sync();
    int alone = 0, shared = 0;
    for (int launch = 0; launch < 30; ++launch) {
      ids.clear();
      program.run(sink);
      program.sync();
      ++(ids.size() == 1 ? alone : shared);
    }
    if (share_all) {
      EXPECT_EQ(alone, 0);
    } else {
      EXPECT_GE(alone, 3);
      EXPECT_GE(shared, 3);
    }
    EXPECT_EQ(state.read().at(0), std::ldexp(1.0, 31));
    EXPECT_EQ(program.output("y").at(kElements - 1), kElements);
  }
}

// An op that asks the test whether a loop goes on. Its input is computed first.
using Question = std::function<bool()>;
const OpDef asks{.name = "asks",
                 .infer =
                     [](InferArgs& a) {
                       a.expect_inputs(1);
                       a.out(boolean, {});
                     },
                 .bodies = {[](const CpuArgs& a) { *a.out<bool>(0) = (*a.attrs<const Question*>())(); }}};

// A launch whose loop runs for long tries both ways in it. Each iteration runs once, whoever runs it.
TEST(SharedLoops, AreMeasuredInALaunch) {
  constexpr std::int64_t kElements = 80000;  // enough to be shared
  std::atomic<std::thread::id> first, last;
  const Tile take_ids = [&](float x) {
    if (x == 0) first = std::this_thread::get_id();
    if (x == kElements - 1) last = std::this_thread::get_id();
  };
  int iterations = 0, alone = 0, most = 0;
  const Question goes_on = [&] {
    ++iterations;
    if (first.load() == last.load()) ++alone;
    return iterations < most && (alone < 10 || iterations - alone < 10);
  };
  std::vector<float> elements(kElements);
  std::iota(elements.begin(), elements.end(), 0.0f);
  Graph g;
  auto [x, more, count] = while_(
      {g.value(Variable("x", Tensor({kElements}, elements))), g.constant(Tensor::scalar(true)), 0},
      [](Value, Value more, Value) { return more; },
      [&](Value x, Value, Value count) {
        Value y = emit(observed, {x}, &take_ids)[0];
        return std::array<Value, 3>{y - 1.0, emit(asks, {y}, &goes_on)[0], count + 1};
      });
  g.output("x", x);
  g.output("count", count);
  Program program = compile(g, {.target = cpu(), .tuning = {.threads = 2}});
  program.run(sink);  // op by op
  program.sync();
  most = 5000;
  iterations = alone = 0;
  program.run(sink);
  program.sync();
  EXPECT_GE(alone, 10);
  EXPECT_GE(iterations - alone, 10);
  EXPECT_EQ(program.output("count").at(0), iterations);
  EXPECT_EQ(program.output("x").at(kElements - 1), kElements - 1);
}

// Each tile waits until as many run as there are threads.
TEST(SharedNodes, TilesRunAtTheSameTime) {
  for (int threads : {2, 3}) {
    std::atomic<int> arrived = 0;
    std::atomic<bool> are_together = true;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const Tile meet = [&](float) {
      ++arrived;
      while (arrived < threads && are_together) {
        if (std::chrono::steady_clock::now() > deadline) are_together = false;
        std::this_thread::yield();
      }
    };
    Program program = Observed().compile(meet, threads);
    program.run(interactive_parallel);
    program.sync();
    EXPECT_TRUE(are_together) << threads;
    EXPECT_EQ(program.counters().shared, 1u);
  }
}

TEST(SharedNodes, StayOnOneThreadInSeriesOrIfTheyAreSmall) {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  const Tile take_id = [&](float) {
    std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  };
  struct {
    Mode mode;
    int threads;
    bool share_all;
  } const cases[] = {{interactive_serial, 3, true}, {interactive_parallel, 1, true}, {interactive_parallel, 3, false}};
  for (const auto& c : cases) {
    ids.clear();
    Program program = Observed().compile(take_id, c.threads, c.share_all);
    program.run(c.mode, {.steps = 5});
    program.sync();
    EXPECT_EQ(ids.size(), 1u);
    EXPECT_EQ(program.counters().shared, 0u);
  }
}

TEST(SharedNodes, IfTilesFailTheStepCommitsNothing) {
  const Tile refuse_negative = [](float x) {
    if (x < 0) throw std::runtime_error("a negative element");
  };
  Observed model;
  Program program = model.compile(refuse_negative, 3);
  program.run(interactive_parallel);
  program.sync();
  std::vector<float> bad(64, 2);
  for (int i : {0, 20, 21, 63}) bad[static_cast<std::size_t>(i)] = -1;
  program.write(model.x, bad);
  program.run(interactive_parallel);
  try {
    program.sync();
    ADD_FAILURE() << "the step did not fail";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("a negative element"), std::string::npos) << e.what();
    EXPECT_EQ(e.op(), "observed");
  }
  EXPECT_EQ(model.state.read().at(0), 2);
  program.write(model.x, std::vector<float>(64, 3));
  program.run(interactive_parallel);
  EXPECT_EQ(program.output("y").at(63), 4);
  EXPECT_EQ(model.state.read().at(0), 3);
}

// Several tiles of one step fail. Nothing is committed, and the next step is as if it had not been.
TEST(SharedLaunches, AStepThatFailsCommitsNothing) {
  Graph g;
  Variable state("state", Tensor::full(f32, {}, 1)), table("table", Tensor::uniform({50, 40}, 1));
  Value index = g.input("index", i32, {6});
  std::vector<Value> rows;
  for (int i = 0; i < 6; ++i) rows.push_back(gather(g.value(table), slice(index, {i}, {i + 1}), 0));
  Value total = sum(rows[0]);
  for (int i = 1; i < 6; ++i) total = total + sum(rows[static_cast<std::size_t>(i)]);
  assign(state, g.value(state) + 1.0);
  g.output("total", total);
  Program program = compile(g, {.target = cpu(), .tuning = {.threads = 3}, .guards = {.share_all = true}});
  program.write(index, std::vector<std::int32_t>{0, 1, 2, 3, 4, 5});
  for (int i = 0; i < 3; ++i) program.run(sink);
  program.sync();
  program.write(index, std::vector<std::int32_t>{0, 50, 2, 60, 4, 70});
  program.run(sink);
  EXPECT_THROW(program.sync(), Error);
  EXPECT_EQ(state.read().at(0), 4);
  program.write(index, std::vector<std::int32_t>{5, 1, 2, 3, 4, 5});
  program.run(sink);
  program.sync();
  EXPECT_EQ(state.read().at(0), 5);
}

TEST(SharedLaunches, ANumberOfThreadsOutOfRangeIsRefused) {
  Graph g;
  g.output("y", variable(g, "x", {2}, 1) + 1.0);
  for (int threads : {-1, 1025, std::numeric_limits<int>::max()})
    EXPECT_THROW(compile(g, {.target = cpu(), .tuning = {.threads = threads}}), Error) << threads;
  EXPECT_NO_THROW(compile(g, {.target = cpu(), .tuning = {.threads = 1024}}));
}

}  // namespace
}  // namespace graphsink::tiles_test
