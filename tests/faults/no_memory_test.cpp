// Allocations that find no memory say what they were for and what the program needs.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>

#include "fault_fixture.h"
#include "test_ops.h"

namespace graphsink::no_memory_test {
namespace {

using testing::contains;
using testing::Fault;
using testing::message_of;

// One row for each thing that memory is for.
struct MemoryRow {
  const char* name;
  enum Call { kCompile, kWrite, kBind } call;  // which of these meets it
  const char* function;
  int nth;  // call of the function in there
  std::vector<const char*> words;
};
void PrintTo(const MemoryRow& row, std::ostream* out) { *out << row.name; }

const MemoryRow kMemoryRows[] = {
    {"Status",
     MemoryRow::kCompile,
     "cudaMalloc",
     1,
     {"memory of cuda:0", "no room for what steps report: out of memory: cudaMalloc needs", "MiB are free",
      "remedy: end other programs on cuda:0"}},
    {"Records",
     MemoryRow::kCompile,
     "cudaHostAlloc",
     7,
     {"memory of the host", "no room for the rings of 2 records (1.0 MiB): out of memory: cudaHostAlloc",
      "record fewer values, or end other programs on this machine"}},
    {"Slices",
     MemoryRow::kWrite,
     "cudaMalloc",
     1,
     {"no room for what was written (3.8 MiB): out of memory: cudaMalloc needs", "write fewer slices"}},
    {"Arena",
     MemoryRow::kBind,
     "cuMemCreate",
     1,
     {"no room for the arena", "out of memory: cuMemCreate for an arena needs", "MiB are free", "smaller batches"}},
    {"HostArena",
     MemoryRow::kBind,
     "cudaHostAlloc",
     2,
     {"no room for the values and workspaces of ops on the host (39.5 KiB)", "give these ops a CUDA body"}},
    {"Constant", MemoryRow::kBind, "cudaMalloc", 2, {"no room for a constant (1.0 KiB)", "make it smaller"}},
    {"Variable", MemoryRow::kBind, "cudaMalloc", 1, {"no room for Variable \"w\" (3.9 KiB)", "less state (sgd)"}},
};

class NoMemory : public Fault, public ::testing::WithParamInterface<MemoryRow> {};
INSTANTIATE_TEST_SUITE_P(For, NoMemory, ::testing::ValuesIn(kMemoryRows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(NoMemory, IsSaidWithWhatItWasForAndWhatTheProgramNeeds) {
  const MemoryRow& row = GetParam();
  Graph g;
  Variable w("w", Tensor(f32, {1000}));
  Value x = g.feed("x", f32, {5000});
  Value y = emit(testing::cpu_plus_one, {x})[0];
  g.record("y", sum(y) + sum(g.constant(Tensor(f32, {256}))));
  g.record("w", sum(g.value(w)));
  std::optional<Program> p;
  auto fail_in = [&](MemoryRow::Call call, auto&& act) {
    if (row.call != call) return act();
    emu::fail(row.function, row.nth, cudaErrorMemoryAllocation);
    std::string message = message_of(act);
    for (const char* word : row.words) EXPECT_TRUE(contains(message, word)) << word << " in: " << message;
    for (const char* word : {"no_memory_test.cpp:", "the program needs ", "its largest values are ",
                             "feed \"x\" f32[5000]", "(no_memory_test.cpp:", "; remedy: "})
      EXPECT_TRUE(contains(message, word)) << word << " in: " << message;
    EXPECT_EQ(emu::injected().size(), 1u);
    act();  // there is memory again
  };
  emu::reset_calls();
  fail_in(MemoryRow::kCompile, [&] { p.emplace(compile(g, {.target = cuda(0)})); });
  fail_in(MemoryRow::kWrite, [&] { p->write(x, std::vector<float>(200 * 5000, 1.0f)); });
  fail_in(MemoryRow::kBind, [&] { p->bind(); });
  p->run();
  EXPECT_EQ(p->records("y"), (std::vector<float>{10000}));
}

class NoMemoryForOtherShapes : public Fault {};

TEST_F(NoMemoryForOtherShapes, WhatIsKeptForOtherShapesIsGivenUpFirst) {
  Graph g;
  Value x = g.input("x", f32, {open(4)});
  g.output("y", x + 1.0);
  std::vector<std::string> warnings;
  auto log = [&](LogLevel, std::string_view text) { warnings.emplace_back(text); };
  Program p = compile(g, {.target = cuda(0), .log = log});
  auto write = [&](std::size_t size) { p.write(x, std::vector<float>(size, 2.0f)); };
  for (std::size_t size : {10, 20, 30}) {
    write(size);
    p.run();
  }
  write(1 << 20);
  emu::reset_calls();
  emu::fail("cuMemCreate", 1, cudaErrorMemoryAllocation);
  p.run();
  EXPECT_EQ(emu::injected().size(), 1u);
  EXPECT_EQ(p.counters().cached_shapes, 1u);
  EXPECT_EQ(p.counters().evicted_shapes, 3u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(contains(warnings[0], "memory is short (out of memory: cuMemCreate for an arena needs")) << warnings[0];
  EXPECT_TRUE(contains(warnings[0], "that are kept for 3 other sets of input shapes are given up")) << warnings[0];
  write(20);
  p.run();
  EXPECT_EQ(p.output("y").as<float>()[19], 3.0f);
}

// Staged slices survive the attempt that finds no memory, and an attempt that fails.
TEST_F(NoMemoryForOtherShapes, StagedSlicesAreSentAgain) {
  Graph g;
  Value x = g.feed("x", f32, {open(4)});
  g.output("y", x + 1.0);
  Program p = compile(g, {.target = cuda(0), .log = [](LogLevel, std::string_view) {}});
  auto staged = [&](std::int64_t size) {
    StagedSlices slices = p.stage(x, 1, {size});
    std::fill_n(slices.slice<float>(0).data(), size, 2.0f);
    return slices;
  };
  for (std::int64_t size : {10, 20, 30}) {
    p.write(staged(size));
    p.run();
  }
  StagedSlices large = staged(1 << 20);
  emu::reset_calls();
  emu::fail("cudaMalloc", 1, cudaErrorMemoryAllocation);
  p.write(std::move(large));
  EXPECT_EQ(emu::injected().size(), 1u);
  EXPECT_GE(p.counters().evicted_shapes, 1u);
  p.run();
  EXPECT_EQ(p.output("y").as<float>()[(1 << 20) - 1], 3.0f);

  StagedSlices next = staged(15);
  emu::reset_calls();
  emu::fail("cudaMemcpyAsync", 1, cudaErrorInvalidValue);
  EXPECT_THROW(p.write(std::move(next)), Error);
  EXPECT_EQ(next.size(), 1);
  p.write(std::move(next));
  EXPECT_EQ(next.size(), 0);
  p.run();
  EXPECT_EQ(p.output("y").as<float>()[14], 3.0f);
}

// Whatever fails, the same batches come after it.
TEST_F(NoMemoryForOtherShapes, ALoaderGoesOnBehindAFailedWrite) {
  for (const char* call :
       {"cudaMalloc", "cudaHostAlloc", "cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent"}) {
    SCOPED_TRACE(call);
    Graph g;
    Value a = g.feed("a", f32, {2}), b = g.feed("b", f32, {2});
    g.record("sum", sum(a + b));
    Program p = compile(g, {.target = cuda(0), .log = [](LogLevel, std::string_view) {}});
    const auto source = function_source(8, {{"a", {f32, {}}}, {"b", {f32, {}}}}, [](std::int64_t i, SampleMemory to) {
      const auto x = static_cast<float>(i);
      std::memcpy(to[0].data(), &x, sizeof x);
      std::memcpy(to[1].data(), &x, sizeof x);
    });
    Loader loader(p, source, sample_order(8, {.batch = 2, .is_shuffled = false}), {{"a", a}, {"b", b}});
    for (int number = 1; number <= 3; ++number) {
      emu::clear_faults();
      emu::reset_calls();
      emu::fail(call, number, std::strcmp(call, "cudaMalloc") == 0 ? cudaErrorMemoryAllocation : cudaErrorInvalidValue);
      try {
        if (const std::int64_t steps = loader.next()) p.run(sink, {.steps = steps});
        p.sync();
      } catch (const Error&) {
      }
    }
    emu::clear_faults();
    const LoaderPosition position = loader.position();
    (void)p.records("sum");
    loader.seek({1, 0});
    while (const std::int64_t steps = loader.next()) p.run(sink, {.steps = steps});
    EXPECT_EQ(p.records("sum"), (std::vector<float>{2, 10, 18, 26})) << position.batch;
  }
}

// Where there is no memory for launches ahead, the Loader does without them, and says so.
TEST_F(NoMemoryForOtherShapes, ALoaderSaysWhyNothingIsAhead) {
  Graph g;
  Value x = g.feed("x", f32, {2});
  g.record("sum", sum(x));
  Program p = compile(g, {.target = cuda(0), .log = [](LogLevel, std::string_view) {}});
  const auto source = function_source(8, {{"x", {f32, {}}}}, [](std::int64_t i, SampleMemory to) {
    const auto value = static_cast<float>(i);
    std::memcpy(to[0].data(), &value, sizeof value);
  });
  Loader loader(p, source, sample_order(8, {.batch = 2, .is_shuffled = false}), {{"x", x}});
  for (int i = 0; i < 8; ++i) {  // then the program has the buffers that its own uploads need
    p.write(x, std::vector<float>{0, 0});
    p.run();
  }
  (void)p.records("sum");
  EXPECT_EQ(loader.report().obstacle, "");
  emu::reset_calls();
  emu::fail("cudaHostAlloc", 1, cudaErrorMemoryAllocation, true);
  while (const std::int64_t steps = loader.next()) {
    p.run(sink, {.steps = steps});
    p.sync();
  }
  emu::clear_faults();
  EXPECT_EQ(p.records("sum"), (std::vector<float>{1, 5, 9, 13}));
  EXPECT_TRUE(contains(loader.report().obstacle, "cudaHostAlloc")) << loader.report().obstacle;
  EXPECT_TRUE(contains(to_string(loader.report()), "fewer launches than asked for were ahead"));
}

// Data of an op that says when it is gone.
struct Local {
  static inline std::atomic<int> alive = 0;
  Local() { ++alive; }
  ~Local() { --alive; }
};
std::atomic<int> calls_without_data = 0;

Prepared make_local(const PrepareArgs&) { return {std::make_shared<const Local>(), 0}; }
void use_local(const CpuArgs& a) {
  calls_without_data += Local::alive == 0;
  std::copy_n(a.in<float>(0), a.in_type(0).shape.size(), a.out<float>(0));
}
const OpDef local_op{.name = "local", .infer = testing::infer_like_first, .prepare = make_local, .bodies = {use_local}};

// A step under way uses what is kept for its shapes. Here that is in host memory, for whose release CUDA waits for
// nothing.
TEST_F(NoMemoryForOtherShapes, NothingIsGivenUpThatAStepUnderWayUses) {
  Graph g;
  Value x = g.input("x", f32, {open(4)});
  g.output("y", emit(local_op, {x})[0] + 1.0);
  Program p = compile(g, {.target = cuda(0), .log = [](LogLevel, std::string_view) {}});
  p.write(x, std::vector<float>(10, 2.0f));
  p.run();
  p.write(x, std::vector<float>(1 << 20, 2.0f));
  emu::reset_calls();
  emu::fail("cuMemCreate", 1, cudaErrorMemoryAllocation);
  p.run();
  EXPECT_EQ(emu::injected().size(), 1u);
  EXPECT_EQ(p.counters().evicted_shapes, 1u);
  EXPECT_EQ(p.output("y").as<float>()[19], 3.0f);
  EXPECT_EQ(calls_without_data, 0);
}

}  // namespace
}  // namespace graphsink::no_memory_test
