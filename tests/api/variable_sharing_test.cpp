// Variables that several programs and threads use, and programs that have theirs for themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <thread>

#include "ir/graph_data.h"
#include "program_fixture.h"

namespace graphsink {
namespace {

using testing::device_name;
using testing::OnDevice;

INSTANTIATE_TEST_SUITE_P(Devices, OnDevice, ::testing::ValuesIn(testing::devices()), device_name);

constexpr Mode kModes[] = {interactive, sink};

struct Accumulators {
  Graph g;
  std::vector<Variable> variables;
  Accumulators(int count, double step) {
    for (int i = 0; i < count; ++i) {
      variables.emplace_back("v" + std::to_string(i), Tensor::scalar(0.0f));
      add_to(variables.back(), step);
    }
  }
  Accumulators(const std::vector<Variable>& shared, double step) : variables(shared) {
    for (Variable& v : variables) add_to(v, step);
  }
  void add_to(Variable& v, double step) { assign(v, g.value(v) + step); }
};

// Brings a Variable to the device and stays idle. Reads and writes of the Variable are work of its device, which one
// thread at a time may use.
struct Home {
  Graph g;
  Program p;
  Home(const Variable& v, DeviceId device) : p(graphsink::compile(graph_of(v), {.target = device})) { p.bind(); }
  const Graph& graph_of(const Variable& v) {
    g.output("v", g.value(v));
    return g;
  }
};

// The mutexes are held by other threads during the runs: a run that wanted one would never end.
TEST_P(OnDevice, AProgramWithVariablesOfItsOwnTakesNoMutexOfThem) {
  constexpr int kVariables = 300, kHeldByAThread = 50;  // some tools follow no more than 64 mutexes of a thread
  Accumulators work(kVariables, 1);
  Program p = compile(work.g);
  p.run(sink);
  p.run(sink);
  std::atomic<int> holding = 0;
  std::atomic<bool> is_done = false, is_late = false;
  std::vector<std::thread> holders;
  for (int first = 0; first < kVariables; first += kHeldByAThread) {
    holders.emplace_back([&, first] {
      std::deque<std::unique_lock<std::mutex>> held;
      for (int i = first; i < first + kHeldByAThread; ++i)
        held.emplace_back(work.variables[static_cast<std::size_t>(i)].data()->mutex);
      ++holding;
      auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!is_done) {
        if (std::chrono::steady_clock::now() > deadline) {
          is_late = true;
          return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  while (holding < kVariables / kHeldByAThread) std::this_thread::yield();
  for (Mode mode : {sink, interactive, interactive_parallel, automatic, sink}) p.run(mode);
  p.sync();
  EXPECT_TRUE(p.poll());
  is_done = true;
  for (std::thread& holder : holders) holder.join();
  EXPECT_FALSE(is_late);
  for (const Variable& v : work.variables) EXPECT_EQ(v.read().at(0), 7.0);
}

// A copy that no step changes is made again when the Variable was written, by the caller or by another program.
TEST_P(OnDevice, CopiesSeeWhatOthersWrote) {
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Accumulators writer(1, 10);
    Variable v = writer.variables[0];
    Graph g;
    g.output("y", emit(testing::cpu_plus_one, {reshape(g.value(v), {1})})[0]);
    Program reads = compile(g);
    auto y = [&] {
      reads.run(mode);
      return reads.read_output("y").at(0);
    };
    EXPECT_EQ(y(), 1);
    EXPECT_EQ(y(), 1);
    v.write(Tensor::scalar(2.0f));
    EXPECT_EQ(y(), 3);
    {
      Program writes = compile(writer.g);
      for (int i = 1; i <= 3; ++i) {
        writes.run(mode);
        writes.run(mode);
        EXPECT_EQ(y(), 3 + 20 * i);
      }
      v.write(Tensor::scalar(0.0f));
      writes.run(mode);
      EXPECT_EQ(v.read().at(0), 10);
      EXPECT_EQ(y(), 11);
      EXPECT_EQ(y(), 11);
      writes.run(mode);
    }
    EXPECT_EQ(y(), 21);
    EXPECT_EQ(y(), 21);
  }
}

TEST_P(OnDevice, ProgramsThatShareVariablesFollowOneAnother) {
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Accumulators adds(3, 1);
    Graph g;
    for (Variable& v : adds.variables) assign(v, g.value(v) * 2.0);
    Program p = compile(adds.g), q = compile(g);
    double expected = 0;
    for (int i = 0; i < 12; ++i) {
      if (i % 3 != 1) p.run(mode), expected += 1;
      if (i % 3 != 2) q.run(mode), expected *= 2;
      if (i % 5 == 4) {
        adds.variables[1].write(Tensor::scalar(static_cast<float>(expected)));
      }
    }
    for (const Variable& v : adds.variables) EXPECT_EQ(v.read().at(0), expected);
  }
}

// Runs `between` on the thread of run() in split modes, before the step commits.
struct Between {
  std::function<void()>* call;
};
const OpDef between_op{.name = "between", .infer = testing::infer_like_first, .cpu = [](const CpuArgs& a) {
                         (*a.attrs<Between>().call)();
                         *a.out<float>(0) = *a.in<float>(0);
                       }};

TEST_P(OnDevice, OtherThreadsWaitForTheEndOfARun) {
  if (!is_cuda()) return;  // bodies run on the device's thread
  Variable v("v", Tensor({0.0f}));
  Home home(v, GetParam());
  std::function<void()> call = [] {};
  Graph g;
  assign(v, emit(between_op, {g.value(v) + 1.0}, Between{&call})[0]);
  Accumulators other({v}, 10);
  Program p = compile(g), q = compile(other.g);
  for (Mode mode : {split_serial, split_sink}) {
    SCOPED_TRACE(to_string(mode));
    for (int action = 0; action < 3; ++action) {
      v.write(Tensor({0.0f}));
      call = [] {};
      p.run(mode);  // what is captured is captured
      std::atomic<bool> is_done = false;
      double seen = 0;
      std::thread thread;
      call = [&] {
        thread = std::thread([&] {
          if (action == 0) seen = v.read().at(0);
          if (action == 1) v.write(Tensor({100.0f}));
          if (action == 2) q.run(interactive);
          is_done = true;
        });
        for (int ms = 0; ms < 100 && !is_done; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
      p.run(mode);
      thread.join();
      p.sync();
      q.sync();
      EXPECT_EQ(seen, action == 0 ? 2 : 0);
      const double expected[] = {2, 100, 12};
      EXPECT_EQ(v.read().at(0), expected[action]);
    }
  }
}

// Whole runs of each thread, in any order: nothing is lost and nothing torn.
TEST_P(OnDevice, ThreadsThatRunProgramsOnOneVariableTakeTurns) {
  constexpr int kThreads = 3, kRuns = 60;
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Variable v("v", Tensor::scalar(0.0f));
    Home home(v, GetParam());
    std::atomic<bool> is_done = false;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        Accumulators adds({v}, 1);
        Program p = compile(adds.g);
        for (int i = 0; i < kRuns; ++i) p.run(mode);
        p.sync();
      });
    }
    std::thread reader([&] {
      for (double last = 0; !is_done;) {
        double now = v.read().at(0);
        EXPECT_GE(now, last);
        last = now;
      }
    });
    for (std::thread& thread : threads) thread.join();
    is_done = true;
    reader.join();
    EXPECT_EQ(v.read().at(0), kThreads * kRuns);
  }
}

// Each wants all, and takes them in another order than the next thread.
TEST_P(OnDevice, ThreadsThatRunProgramsOnSeveralVariablesTakeTurns) {
  constexpr int kThreads = 3, kRuns = 30, kVariables = 6;
  std::vector<Variable> variables;
  std::deque<Home> homes;
  for (int i = 0; i < kVariables; ++i) {
    variables.emplace_back("v" + std::to_string(i), Tensor::scalar(0.0f));
    homes.emplace_back(variables.back(), GetParam());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Variable> mine = variables;
      if (t % 2) std::reverse(mine.begin(), mine.end());
      Accumulators adds(mine, 1);
      Program p = compile(adds.g);
      for (int i = 0; i < kRuns; ++i) p.run(kModes[i / 10 % 2]);
      p.sync();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Variable& v : variables) EXPECT_EQ(v.read().at(0), kThreads * kRuns);
}

TEST_P(OnDevice, WritesOfAnotherThreadFallBetweenRuns) {
  constexpr int kRounds = 40;
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Variable v("v", Tensor::full(f32, {64}, 0.0));
    Home home(v, GetParam());
    Graph g;
    assign(v, g.value(v) + 0.5);
    Program p = compile(g);
    std::thread writer([&] {
      for (int i = 1; i <= kRounds; ++i) v.write(Tensor::full(f32, {64}, 1000.0 * i));
    });
    for (int i = 0; i < kRounds; ++i) {
      p.run(mode, {.steps = 2});
      Tensor now = v.read();
      for (int k = 1; k < 64; ++k) ASSERT_EQ(now.at(k), now.at(0));
      double more = now.at(0) - 1000.0 * static_cast<int>(now.at(0) / 1000.0);
      ASSERT_EQ(more, static_cast<int>(more)) << "two steps add 1";
    }
    writer.join();
    EXPECT_GE(v.read().at(0), 1000.0 * kRounds);
  }
}

}  // namespace
}  // namespace graphsink
