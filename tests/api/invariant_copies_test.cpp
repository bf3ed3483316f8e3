// Invariant copies to the host. They run when the source was written, before any op reads them.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "base/at.h"
#include "graphsink/checkpoint.h"
#include "ir/plan.h"
#include "ir/system_ops.h"
#include "program_fixture.h"

namespace graphsink::invariant_copies_test {
namespace {

using testing::cpu_plus_one;
using testing::cpu_refuse_negative;
using testing::OnDevice;

Value plus_one(const Value& v) { return emit(cpu_plus_one, {v})[0]; }
Plan plan_for(const Graph& g) { return make_plan(g, Target::cuda13(), system_ops()); }

int copies_to_host(const Plan& plan, int sequence) {
  int count = 0;
  for (const Task& task : plan.tasks_of(sequence)) {
    if (task.kind != TaskKind::copy) continue;
    count += plan.buffers[at(task.destination)].storage == Storage::host_arena;
  }
  return count;
}
int copies_to_host(const Plan& plan) {
  int count = 0;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) count += copies_to_host(plan, static_cast<int>(i));
  return count;
}

// --- plans

TEST(InvariantCopies, AreInputsAndVariablesThatTheProgramDoesNotAssign) {
  Graph g;
  Variable frozen("frozen", Tensor(f32, {100})), assigned("assigned", Tensor(f32, {100})), w("w", Tensor(f32, {100}));
  Value x = g.input("x", f32, {10, 10}), fed = g.feed("fed", f32, {100});
  g.output("a", plus_one(x));
  g.output("b", plus_one(reshape(g.value(frozen), {10, 10}, on_device)));
  g.output("c", plus_one(g.value(frozen)));
  EXPECT_EQ(copies_to_host(plan_for(g)), 0);
  g.output("d", plus_one(g.value(assigned)));
  g.output("e", plus_one(fed));
  g.output("f", plus_one(cast(g.step(), f32, on_device)));
  g.output("g", emit(cpu_plus_one, {g.value(w)})[0]);
  assign(assigned, g.value(assigned) * 2.0);
  sgd(sum(g.value(w)), {w}, {.lr = 1});
  Plan plan = plan_for(g);
  EXPECT_EQ(copies_to_host(plan), 4);
  ASSERT_EQ(plan.invariant_copies.size(), 2u) << "a view of a Variable is the Variable";
  const Buffer& first = plan.buffers[at(plan.invariant_copies[0].source)];
  const Buffer& second = plan.buffers[at(plan.invariant_copies[1].source)];
  EXPECT_EQ(first.storage, Storage::input);
  EXPECT_EQ(second.storage, Storage::variable);
  EXPECT_EQ(plan.variables[at(second.index)], frozen);
  EXPECT_EQ(plan.buffers[at(plan.invariant_copies[0].destination)].offset, 0u);
  EXPECT_EQ(plan.buffers[at(plan.invariant_copies[1].destination)].offset, 512u);
  EXPECT_EQ(plan.host_invariant_bytes, 1024u);
}

TEST(InvariantCopies, NothingWhereTheHostSharesTheMemory) {
  Graph g;
  g.output("y", plus_one(g.input("x", f32, {4})));
  EXPECT_TRUE(make_plan(g, Target::host(), system_ops()).invariant_copies.empty());
}

// What a loop does not change is copied before the loop. What it changes is copied in every iteration.
TEST(InvariantCopies, LoopInvariantsAreCopiedBeforeTheLoop) {
  Graph g;
  Value x = g.feed("x", f32, {4});
  Value scale = tanh(x, on_device);
  auto [y] = while_(
      {x}, [](const Value& s) { return sum(s) < 100.0; },
      [&](const Value& s) { return mul(add(s, 1.0, on_device), plus_one(scale), on_device); });
  auto [z] = while_(
      {y}, [](const Value& s) { return sum(s) < 100.0; }, [&](const Value& s) { return plus_one(s) * 2.0; });
  g.output("z", z);
  Plan plan = plan_for(g);
  ASSERT_EQ(plan.sequences.size(), 3u);
  EXPECT_EQ(copies_to_host(plan, 0), 1);
  EXPECT_EQ(copies_to_host(plan, 1), 0);
  EXPECT_EQ(copies_to_host(plan, 2), 1);
}

TEST(InvariantCopies, InvariantsOfTheInnerLoopAreCopiedInTheOuterOne) {
  Graph g;
  Value x = g.feed("x", f32, {4});
  auto [y] = while_(
      {x}, [](const Value& s) { return sum(s) < 100.0; },
      [&](const Value& s) {
        auto [inner] = while_(
            {s}, [](const Value& t) { return sum(t) < 50.0; },
            [&](const Value& t) {
              return if_(
                  sum(t) < 10.0, [&] { return add(t, plus_one(s), on_device); },
                  [&] { return add(t, plus_one(x), on_device); });
            });
        return add(inner, 1.0, on_device);
      });
  g.output("y", y);
  Plan plan = plan_for(g);
  ASSERT_EQ(plan.sequences.size(), 5u);
  EXPECT_EQ(copies_to_host(plan, 0), 1) << "x";
  EXPECT_EQ(copies_to_host(plan, 1), 1) << "the state of the outer loop";
  for (int body : {2, 3, 4}) EXPECT_EQ(copies_to_host(plan, body), 0) << body;
}

TEST(InvariantCopies, ABranchCopiesOnlyWhatItReads) {
  Graph g;
  Value x = g.feed("x", f32, {4}), t = g.input("t", f32, {4});
  Value y = tanh(x, on_device);
  g.output("y", if_(
                    sum(x) < 1.0, [&] { return add(plus_one(y), plus_one(t), on_device); },
                    [&] { return add(y, 1.0, on_device); }));
  Plan plan = plan_for(g);
  ASSERT_EQ(plan.sequences.size(), 3u);
  EXPECT_EQ(copies_to_host(plan, 0), 0);
  EXPECT_EQ(copies_to_host(plan, 1), 1);
  EXPECT_EQ(plan.invariant_copies.size(), 1u);
}

// --- programs

// y = (x + 1) * (w + 1), with both sums on the host.
struct Sums {
  Graph g;
  Value x = g.input("x", f32, {1});
  Variable w{"w", Tensor({1.0f})};
  Sums() { g.output("y", mul(plus_one(x), plus_one(g.value(w)), on_device)); }
  static double of(float x, float w) { return (x + 1.0) * (w + 1.0); }
};

TEST_P(OnDevice, AnInputThatIsNotWrittenIsNotCopied) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Sums s;
    Program p = compile(s.g);
    p.bind();  // copies w to the device
    auto copies = [&](float x, bool writes) {
      if (writes) p.write(s.x, std::vector<float>{x});
      std::uint64_t before = p.counters().copies;
      p.run(mode);
      std::uint64_t count = p.counters().copies - before;
      EXPECT_EQ(p.output("y").at(0), Sums::of(x, 1));
      return static_cast<int>(count);
    };
    int first = copies(2, true);
    copies(2, false);
    int steady = copies(2, false);
    EXPECT_EQ(first - steady, is_cuda() ? 2 : 0) << "x and w";
    EXPECT_EQ(steady, is_cuda() ? 2 : 0) << "both sums to the device";
    EXPECT_EQ(copies(5, true) - steady, is_cuda() ? 1 : 0) << "x";
    EXPECT_EQ(copies(5, false), steady);
  }
}

TEST_P(OnDevice, AllModesByTurnsSeeWhatWasWrittenLast) {
  Sums s;
  Program p = compile(s.g, {.guards = {.poison = true, .replay_every = 2}});
  float x = 0, w = 1;
  for (int round = 0; round < 6; ++round) {
    for (Mode mode : kAllModes) {
      SCOPED_TRACE(to_string(mode));
      if (round % 2 == 0) p.write(s.x, std::vector<float>{x += 1});
      if (round % 3 == 0) s.w.write(Tensor({w += 1}));
      p.run(mode, {.steps = 1 + round % 3});
      ASSERT_EQ(p.output("y").at(0), Sums::of(x, w));
    }
  }
}

// The next launch may be issued while the launch before it still reads the copy.
TEST_P(OnDevice, WritesFollowTheRunsBefore) {
  Graph g;
  Value x = g.input("x", f32, {1});
  g.record("y", sum(plus_one(x)));
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Program p = compile(g);
    std::vector<float> wanted;
    for (int i = 0; i < 20; ++i) {
      p.write(x, std::vector<float>{static_cast<float>(i)});
      p.run(mode, {.steps = 2});
      wanted.insert(wanted.end(), 2, static_cast<float>(i) + 1);
    }
    EXPECT_EQ(p.records("y"), wanted);
  }
}

TEST_P(OnDevice, EachBindingHasCopiesOfItsOwn) {
  Graph g;
  Value x = g.input("x", f32, {open(2)});
  Variable w("w", Tensor({1.0f}));
  g.output("y", add(sum(plus_one(x)), sum(plus_one(g.value(w))), on_device));
  Program p = compile(g);
  for (int round = 0; round < 4; ++round) {
    for (std::int64_t n : {2, 70}) {
      auto v = static_cast<float>(round * 100 + n);
      p.write(x, std::vector<float>(at(static_cast<int>(n)), v));
      if (n == 70) w.write(Tensor({v}));
      p.run(kAllModes[round]);
      float seen_w = n == 70 ? v : round == 0 ? 1.0f : static_cast<float>(round * 100 - 30);
      ASSERT_EQ(p.output("y").at(0), static_cast<double>(n) * (v + 1) + seen_w + 1) << round << ", " << n;
    }
  }
}

TEST_P(OnDevice, AnotherProgramAssignsTheVariable) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Sums s;
    Graph writer;
    assign(s.w, writer.value(s.w) + 1.0);
    Program reads = compile(s.g), writes = compile(writer);
    reads.write(s.x, std::vector<float>{0});
    for (int i = 0; i < 4; ++i) {
      reads.run(mode);
      ASSERT_EQ(reads.output("y").at(0), 2.0 + 3 * i);
      writes.run(mode, {.steps = 3});
    }
  }
}

// Runs `between` before the step commits; in split modes, on the thread that called run().
struct Between {
  std::shared_ptr<std::function<void()>> call;
};
const OpDef between_op{.name = "between", .infer = testing::infer_like_first, .bodies = {[](const CpuArgs& a) {
                                                                                (*a.attrs<Between>().call)();
                                                                                *a.out<float>(0) = *a.in<float>(0);
                                                                              }}};

// A copy made while another program is about to commit would be outdated after that commit.
TEST_P(OnDevice, ACopyIsNotMadeDuringAnotherProgramsRun) {
  if (!is_cuda()) return;  // the CPU device makes no copies, and runs bodies on its own thread
  Sums s;
  Graph writer;
  auto call = std::make_shared<std::function<void()>>([] {});
  assign(s.w, emit(between_op, {writer.value(s.w) + 1.0}, Between{call})[0]);
  Program reads = compile(s.g), writes = compile(writer);
  reads.write(s.x, std::vector<float>{0});
  reads.run(interactive);
  writes.run(split_serial);
  std::thread other;
  *call = [&] {
    other = std::thread([&] { reads.run(interactive); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  writes.run(split_serial);
  writes.sync();
  other.join();
  EXPECT_EQ(reads.output("y").at(0), 4.0);
}

TEST_P(OnDevice, AFailedStepLeavesCopiesAsTheyAre) {
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Value x = g.input("x", f32, {1});
    Variable table("table", Tensor({10.0f})), total("total", Tensor({0.0f}));
    Value sum = add(emit(cpu_refuse_negative, {x})[0], plus_one(g.value(table)), on_device);
    assign(total, add(g.value(total), sum, on_device));
    Program p = compile(g);
    double wanted = 0;
    for (float v : {1.0f, 2.0f, -1.0f, 3.0f}) {
      if (v == 3) table.write(Tensor({20.0f}));
      p.write(x, std::vector<float>{v});
      p.run(mode, {.steps = 2});
      if (v < 0) {
        EXPECT_THROW(p.sync(), Error);
        p.run(mode);
        EXPECT_THROW(p.sync(), Error) << "the input is still what it was";
      } else {
        p.sync();
        wanted += 2 * (v + (v == 3 ? 21 : 11));
      }
      EXPECT_EQ(total.read().at(0), wanted) << v;
    }
  }
}

TEST_P(OnDevice, WhatARestoreBringsIsCopied) {
  Graph g;
  Variable table("table", Tensor({10.0f})), total("total", Tensor({0.0f}));
  assign(total, add(g.value(total), add(plus_one(g.value(table)), cast(g.step(), f32), on_device), on_device));
  const Variable all[] = {table, total};
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    table.write(Tensor({10.0f}));
    total.write(Tensor({0.0f}));
    Program p = compile(g);
    p.run(mode);
    p.run(mode, {.steps = 2});
    Checkpoint kept = snapshot(all);
    EXPECT_EQ(total.read().at(0), 36.0);
    table.write(Tensor({-5.0f}));
    p.run(mode, {.steps = 2});
    EXPECT_EQ(total.read().at(0), 35.0);
    restore(all, kept, {.without_step = true});
    p.set_steps(3);
    p.run(mode, {.steps = 2});
    EXPECT_EQ(total.read().at(0), 65.0);
  }
}

TEST_P(OnDevice, LoopsOnTheHostReadWhatStandsBeforeThem) {
  Graph g;
  Value x = g.input("x", f32, {1});
  Variable w("w", Tensor({1.0f}));
  Value twice = mul(g.value(w), 2.0, on_device);
  auto [y] = while_(
      {x}, [](const Value& s) { return sum(s) < 100.0; },
      [&](const Value& s) { return add(s, add(plus_one(twice), plus_one(x), on_device), on_device); });
  g.output("y", y);
  auto wanted = [](float x, float w) {
    float y = x;
    while (y < 100) y += (2 * w + 1) + (x + 1);
    return y;
  };
  for (Mode mode : kAllModes) {
    SCOPED_TRACE(to_string(mode));
    Program p = compile(g);
    float v = 0;
    for (int i = 0; i < 6; ++i) {
      if (i % 2 == 0) p.write(x, std::vector<float>{++v});
      w.write(Tensor({static_cast<float>(i)}));
      p.run(mode);
      ASSERT_EQ(p.output("y").at(0), wanted(v, static_cast<float>(i)));
    }
  }
}

TEST_P(OnDevice, CopiesHaveMemoryOfTheirOwnThatIsKnownBefore) {
  Sums s;
  Program p = compile(s.g);
  p.write(s.x, std::vector<float>{1});
  MemoryReport report = p.memory();
  EXPECT_EQ(report.invariant_copies, is_cuda() ? 512u : 0u);
  for (int i = 0; i < 3; ++i) p.run(sink);
  p.sync();
  EXPECT_EQ(p.counters().host_bytes, p.memory().host_bytes());
  // Without the staging memory, which grows with writes.
  auto held = [&] { return p.counters().host_bytes - p.memory().staging; };
  std::uint64_t host = held(), device = p.counters().device_bytes;
  for (int i = 0; i < 10; ++i) {
    p.write(s.x, std::vector<float>{static_cast<float>(i)});
    p.run(sink);
  }
  p.sync();
  EXPECT_EQ(held(), host);
  EXPECT_EQ(p.counters().device_bytes, device);
}

}  // namespace
}  // namespace graphsink::invariant_copies_test
