// Variables that several programs use, and programs whose Variables no other program uses.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "ir/graph_data.h"
#include "program_fixture.h"

namespace graphsink::variable_sharing_test {
namespace {

using testing::OnDevice;

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

// Another thread holds the locks during the runs. A run that took one of them would never end.
TEST_P(OnDevice, AProgramWithVariablesOfItsOwnTakesNoLockOfThem) {
  constexpr int kVariables = 300;
  Accumulators work(kVariables, 1);
  Program p = compile(work.g);
  p.run(sink);
  p.run(sink);
  std::atomic<bool> is_holding = false, is_done = false, is_late = false;
  std::thread holder([&] {
    for (const Variable& v : work.variables) v.data()->lock.lock();
    is_holding = true;
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!is_done && !is_late) {
      is_late = std::chrono::steady_clock::now() > deadline;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (const Variable& v : work.variables) v.data()->lock.unlock();
  });
  while (!is_holding) std::this_thread::yield();
  for (Mode mode : {sink, interactive, interactive_parallel, automatic, sink}) p.run(mode);
  p.sync();
  EXPECT_TRUE(p.poll());
  is_done = true;
  holder.join();
  EXPECT_FALSE(is_late);
  for (const Variable& v : work.variables) EXPECT_EQ(v.read().at(0), 7.0);
}

// An invariant copy is made again when its Variable was written, by the caller or by another program.
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
      return reads.output("y").at(0);
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

// If an output is an input or a Variable itself, it keeps the value of the run, whatever is written later.
TEST_P(OnDevice, OutputsStayWhatTheyWereUntilTheNextRun) {
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Accumulators writer(1, 10);
    Variable v = writer.variables[0];
    Graph g;
    Value x = g.input("x", f32, {2});
    g.output("x", x);
    g.output("v", g.value(v));
    g.output("view", reshape(g.value(v), {1}));
    Program p = compile(g), writes = compile(writer.g);
    for (int i = 0; i < 3; ++i) {
      v.write(Tensor::scalar(5.0f));
      p.write(x, std::vector<float>{1, 2});
      p.run(mode);
      p.write(x, std::vector<float>{3, 4});
      writes.run(mode);
      EXPECT_EQ(p.output("x").at(1), 2.0);
      EXPECT_EQ(p.output("v").at(0), 5.0);
      v.write(Tensor::scalar(7.0f));
      EXPECT_EQ(p.output("v").at(0), 5.0);
      EXPECT_EQ(p.output("view").at(0), 5.0);
    }
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

}  // namespace
}  // namespace graphsink::variable_sharing_test
