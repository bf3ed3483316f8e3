// Variables that several threads use: they run programs on them, and read and write them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "program_fixture.h"

namespace graphsink::variable_threads_test {
namespace {

using testing::OnDevice;

constexpr Mode kModes[] = {interactive, sink};

Graph adding(std::vector<Variable> variables, double step) {
  Graph g;
  for (Variable& v : variables) assign(v, g.value(v) + step);
  return g;
}

// Runs `between` before the step commits; in split modes, on the thread that called run().
struct Between {
  std::function<void()>* call;
};
const OpDef between_op{.name = "between", .infer = testing::infer_like_first, .bodies = {[](const CpuArgs& a) {
                                                                                (*a.attrs<Between>().call)();
                                                                                *a.out<float>(0) = *a.in<float>(0);
                                                                              }}};

TEST_P(OnDevice, OtherThreadsWaitForTheEndOfARun) {
  if (!is_cuda()) return;  // the CPU device runs bodies on its own thread
  Variable v("v", Tensor({0.0f}));
  std::function<void()> call = [] {};
  Graph g;
  assign(v, emit(between_op, {g.value(v) + 1.0}, Between{&call})[0]);
  Graph other = adding({v}, 10);
  Program p = compile(g), q = compile(other);
  for (Mode mode : {split_serial, split_sink}) {
    SCOPED_TRACE(to_string(mode));
    for (int action = 0; action < 3; ++action) {
      v.write(Tensor({0.0f}));
      call = [] {};
      p.run(mode);  // captures everything that will be captured
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

// Whole runs of all threads take turns in any order. No update is lost, and no value is torn.
TEST_P(OnDevice, ThreadsThatRunProgramsOnOneVariableTakeTurns) {
  constexpr int kThreads = 3, kRuns = 60;
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Variable v("v", Tensor::scalar(0.0f));
    std::atomic<bool> is_done = false;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        Program p = compile(adding({v}, 1));
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

// Each thread uses all Variables, in a different order than the next thread.
TEST_P(OnDevice, ThreadsThatRunProgramsOnSeveralVariablesTakeTurns) {
  constexpr int kThreads = 3, kRuns = 30, kVariables = 6;
  std::vector<Variable> variables;
  for (int i = 0; i < kVariables; ++i) variables.emplace_back("v" + std::to_string(i), Tensor::scalar(0.0f));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Variable> mine = variables;
      if (t % 2) std::reverse(mine.begin(), mine.end());
      Program p = compile(adding(mine, 1));
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

// Each thread trains the same parameters, with its own graph or with one that all threads compile, and counts its runs
// in a Variable. All parameters are equal. So if an evaluating program sees two different ones, it has seen an
// unfinished run.
struct Training {
  int threads;
  bool is_same_graph;
  bool is_adamw;
  int parameters;
};

std::string training_name(const Training& t) {
  return std::to_string(t.threads) + (t.is_same_graph ? "_same_" : "_different_") + (t.is_adamw ? "adamw_" : "sgd_") +
         std::to_string(t.parameters);
}

std::vector<Training> all_training() {
  std::vector<Training> all;
  for (int threads : {2, 4, 8})
    for (bool is_same_graph : {true, false})
      for (bool is_adamw : {false, true})
        for (int parameters : {1, 5, 20}) all.push_back({threads, is_same_graph, is_adamw, parameters});
  return all;
}

// Returns the number of runs of each thread. All threads of all rows together make at least 2,000 runs, or 100,000 with
// GS_FULL=1.
int runs_of_each_thread(const Training& t) {
  const int parts = static_cast<int>(all_training().size()) * t.threads;
  return ((std::getenv("GS_FULL") ? 100000 : 2000) + parts - 1) / parts;
}

Graph training_graph(const std::vector<Variable>& parameters, const Variable& count, bool is_adamw) {
  Graph g;
  Value loss = sum(g.value(parameters[0]));
  for (std::size_t i = 1; i < parameters.size(); ++i) loss = loss + sum(g.value(parameters[i]));
  if (is_adamw) {
    adamw(loss, parameters, {.lr = 0.125});
  } else {
    sgd(loss, parameters, {.lr = 0.125});
  }
  assign(count, g.value(count) + 1.0);
  return g;
}

// Computes how much the parameters differ from the first one.
Graph evaluating_graph(const std::vector<Variable>& parameters, const Variable& count) {
  Graph g;
  Value difference = g.constant(Tensor::scalar(0.0f));
  for (const Variable& p : parameters) difference = difference + sum(abs(g.value(p) - g.value(parameters[0])));
  g.output("difference", difference);
  g.output("count", g.value(count));
  return g;
}

TEST_P(OnDevice, ThreadsThatTrainTheSameParametersLoseNothingAndSeeWholeRuns) {
  for (const Training& training : all_training()) {
    SCOPED_TRACE(training_name(training));
    const int runs = runs_of_each_thread(training);
    std::vector<Variable> parameters;
    for (int i = 0; i < training.parameters; ++i)
      parameters.emplace_back("p" + std::to_string(i), Tensor({1.0f, 2.0f, 3.0f}));
    Variable count("count", Tensor::scalar(0.0f));
    Graph shared = training_graph(parameters, count, training.is_adamw);
    std::atomic<bool> is_done = false;
    std::thread evaluating([&] {
      Program p = compile(evaluating_graph(parameters, count));
      for (double last = 0; !is_done;) {
        p.run(sink);
        EXPECT_EQ(p.output("difference").at(0), 0.0);
        double now = p.output("count").at(0);
        EXPECT_GE(now, last);
        last = now;
        EXPECT_GE(count.read().at(0), now);
      }
    });
    std::vector<std::thread> threads;
    for (int t = 0; t < training.threads; ++t) {
      threads.emplace_back([&, t] {
        Program p = compile(training.is_same_graph ? shared : training_graph(parameters, count, training.is_adamw));
        for (int i = 0; i < runs; ++i) p.run(kModes[(i / 8 + t) % 2]);
        p.sync();
        EXPECT_EQ(p.steps(), runs);
      });
    }
    for (std::thread& thread : threads) thread.join();
    is_done = true;
    evaluating.join();
    EXPECT_EQ(count.read().at(0), training.threads * runs);
    if (training.is_adamw) continue;
    for (const Variable& p : parameters) EXPECT_EQ(p.read().at(0), 1.0 - 0.125 * training.threads * runs);
  }
}

// The first program copied the Variable to the device. Its thread uses that device in every call.
TEST_P(OnDevice, VariablesAreReadAndWrittenBesideAllCallsOfTheFirstProgram) {
  Variable v("v", Tensor::full(f32, {16}, 0.0));
  Graph g;
  Value x = g.input("x", f32, {open(4)});
  assign(v, g.value(v) + 1.0);
  g.output("y", emit(testing::cpu_plus_one, {x})[0]);
  Program p = compile(g);
  std::atomic<bool> is_done = false;
  p.write(x, std::vector<float>(4));
  p.bind();
  std::vector<std::thread> others;
  for (int t = 0; t < 2; ++t) {
    others.emplace_back([&, t] {
      while (!is_done) {
        Tensor now = v.read();
        for (int i = 1; i < 16; ++i) ASSERT_EQ(now.at(i), now.at(0));
        if (t == 0) v.write(Tensor::full(f32, {16}, 0.0));
      }
    });
  }
  for (int i = 0; i < 40; ++i) {
    std::size_t size = 1 + static_cast<std::size_t>(i) % 5;
    p.write(x, std::vector<float>(size, static_cast<float>(i)));
    p.run(i % 2 ? sink : interactive);
    if (i % 3 == 0) (void)p.poll();
    if (i % 7 == 0) (void)p.counters();
    EXPECT_EQ(p.output("y").at(0), i + 1);
  }
  is_done = true;
  for (std::thread& other : others) other.join();
}

// A checkpoint has what one step has left, and no step sees a part of what restore() writes.
TEST_P(OnDevice, SnapshotsAndRestoresOfSeveralVariablesFallBetweenSteps) {
  constexpr int kTimes = 400;
  std::vector<Variable> variables;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) variables.emplace_back(name, Tensor(f32, {10'000}));
  Graph g = adding(variables, 1);
  Value apart = g.constant(Tensor::scalar(0.0f));
  for (Variable& v : variables) apart = apart + sum(abs(g.value(v) - g.value(variables[0])));
  g.output("apart", apart);
  Program p = compile(g);
  std::atomic<int> at_work = 2;
  int copies_apart = 0;
  std::thread copies([&] {
    for (int i = 0; i < kTimes; ++i) {
      const Checkpoint copied = snapshot(variables);
      const double first = copied.tensors.at("a").at(0);
      copies_apart += std::any_of(copied.tensors.begin(), copied.tensors.end(),
                                  [&](const auto& tensor) { return tensor.second.at(0) != first; });
    }
    --at_work;
  });
  std::thread writes([&] {
    for (int i = 1; i <= kTimes; ++i) {
      Checkpoint checkpoint;
      for (const Variable& v : variables) checkpoint.tensors[v.name()] = Tensor::full(f32, v.type().shape, 1000.0 * i);
      restore(variables, checkpoint, {.without_step = true});
    }
    --at_work;
  });
  double sum_apart = 0;
  for (int i = 0; i < 2 || at_work > 0; ++i) {
    p.run(kModes[i % 2]);
    sum_apart += p.output("apart").at(0);
  }
  copies.join();
  writes.join();
  EXPECT_EQ(sum_apart, 0);
  EXPECT_EQ(copies_apart, 0);
}

TEST_P(OnDevice, ABodyCannotReadOrWriteAVariable) {
  Variable v("v", Tensor({1.0f}));
  for (bool is_write : {false, true}) {
    for (Mode mode : testing::kModes) {
      SCOPED_TRACE(to_string(mode));
      std::function<void()> call = [&] {
        if (is_write) {
          v.write(Tensor({2.0f}));
        } else {
          (void)v.read();
        }
      };
      Graph g;
      assign(v, emit(between_op, {g.value(v)}, Between{&call})[0]);
      Program p = compile(g);
      p.run(mode);
      try {
        p.sync();
        FAIL() << "the body used the Variable";
      } catch (const Error& e) {
        EXPECT_EQ(e.op(), "between");
        EXPECT_NE(e.problem().find(is_write ? "write() was called by the body" : "read() was called by the body"),
                  std::string::npos)
            << e.what();
        EXPECT_NE(e.problem().find("variable_threads_test.cpp:"), std::string::npos) << e.what();
      }
      EXPECT_EQ(v.read().at(0), 1.0);
    }
  }
}

// The inner program would wait for the program whose step it is a part of.
TEST_P(OnDevice, ABodyCannotRunAProgramThatSharesVariablesWithAnother) {
  Variable v("v", Tensor({1.0f}));
  Program inner = compile(adding({v}, 1));
  inner.bind();
  std::function<void()> call = [&] { inner.run(interactive); };
  Graph g;
  assign(v, emit(between_op, {g.value(v)}, Between{&call})[0]);
  Program p = compile(g);
  for (Mode mode : testing::kModes) {
    SCOPED_TRACE(to_string(mode));
    p.run(mode);
    try {
      p.sync();
      FAIL() << "the body ran the program";
    } catch (const Error& e) {
      EXPECT_NE(e.problem().find("was called by the body of an op"), std::string::npos) << e.what();
    }
  }
  EXPECT_EQ(v.read().at(0), 1.0);
}

// Each of these calls would wait for the step that waits for the body.
TEST_P(OnDevice, ABodyCannotCallItsOwnProgram) {
  Graph g;
  std::function<void()> call;
  Value x = g.input("x", f32, {1});
  g.output("y", emit(between_op, {x}, Between{&call})[0]);
  g.record("x", sum(x));
  Program p = compile(g);
  p.write(x, std::vector<float>{1});
  const std::function<void()> calls[] = {
      [&] { p.sync(); },         [&] { (void)p.poll(); },       [&] { p.run(); },
      [&] { p.bind(); },         [&] { (void)p.steps(); },      [&] { p.write(x, std::vector<float>{2}); },
      [&] { p.set_steps(0); },   [&] { (void)p.records("x"); }, [&] { (void)p.output("y"); },
      [&] { (void)p.output(x); }};
  for (const auto& each : calls) {
    call = each;
    for (Mode mode : testing::kModes) {
      SCOPED_TRACE(std::string(to_string(mode)) + ", call " + std::to_string(&each - calls));
      p.run(mode);
      try {
        p.sync();
        FAIL() << "the body called its program";
      } catch (const Error& e) {
        EXPECT_EQ(e.op(), "between");
        EXPECT_NE(e.problem().find("was called by the body of an op of the same program"), std::string::npos)
            << e.what();
      }
    }
  }
  call = [] {};
  p.run();
  EXPECT_EQ(p.output("y").at(0), 1.0);
}

}  // namespace
}  // namespace graphsink::variable_threads_test
