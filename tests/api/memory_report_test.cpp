// The memory that a program reports in advance is the memory that its device then holds.
#include "graphsink/memory.h"

#include <gtest/gtest.h>

#include "program_fixture.h"

namespace graphsink::testing::memory_report_test {
namespace {

class MemoryReports : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, MemoryReports, ::testing::ValuesIn(devices()), device_name);

// Uses everything that a report counts: an input, a feed, a constant, Variables with state, products, records and an op
// on the host.
struct Training {
  Graph g;
  Variable w1{"w1", Tensor::kaiming({30, 40}, 1)}, w2{"w2", Tensor::kaiming({40, 10}, 2)};
  Value x = g.feed("x", f32, {open(16), 30}), bias = g.input("bias", f32, {10});
  Training() {
    Value shift = g.constant(Tensor::full(f32, {30}, 0.5));
    Value hidden = emit(cpu_plus_one, {relu(matmul(x + shift, w1))})[0] * 1.0;
    Value y = matmul(hidden, w2) + bias;
    Value loss = mean(y * y);
    adamw(loss, {w2}, {.lr = 1e-3});
    g.record("loss", loss);
    g.record("largest", sum(y));
    g.output("y", y);
  }
  void write(Program& p, std::int64_t batch, std::int64_t slices) const {
    p.write(x, Tensor::full(f32, {slices, batch, 30}, 0.25));
    p.write(bias, std::vector<float>(10, 1.0f));
  }
};

void expect_equal(const MemoryReport& report, const Counters& counters) {
  EXPECT_EQ(report.device_bytes(), counters.device_bytes) << to_string(report);
  EXPECT_EQ(report.host_bytes(), counters.host_bytes) << to_string(report);
}

TEST_P(MemoryReports, AreWhatTheDeviceThenHolds) {
  Training training;
  Program p = compile(training.g);
  training.write(p, 16, 5);
  MemoryReport before = p.memory();
  EXPECT_LT(p.counters().device_bytes, before.device_bytes()) << "the arena, workspaces and Variables are to come";
  for (Mode mode : kModes) p.run(mode, {.steps = 5});
  p.sync();
  MemoryReport after = p.memory();
  expect_equal(after, p.counters());
  EXPECT_EQ(after.device_bytes(), before.device_bytes());
  EXPECT_EQ(after.records, 2 * kRecordCapacity * sizeof(double));
  EXPECT_EQ(after.feeds, 9728u);  // 5 slices of 16 x 30 floats, rounded up
  EXPECT_GE(after.arena, after.packed);
  EXPECT_GT(after.packed, 0u);
  EXPECT_EQ(after.host_arena > 0, is_cuda());
  EXPECT_GT(after.staging + after.status, 0u);
}

TEST_P(MemoryReports, KnowThatSeveralSlicesOfAFeedAreLarge) {
  Training training;
  Program p = compile(training.g);
  EXPECT_EQ(p.memory().feeds, 2048u);
  training.write(p, 16, 100);
  MemoryReport report = p.memory();
  EXPECT_EQ(report.largest.at(0).name, "feed \"x\"");
  EXPECT_EQ(report.largest.at(0).bytes, 192000u);
  EXPECT_EQ(report.largest.at(0).type, (TensorType{f32, {16, 30}}));
}

TEST_P(MemoryReports, FollowTheShapesWrittenLast) {
  Training training;
  Program p = compile(training.g);
  std::size_t small = p.memory().arena;
  training.write(p, 40000, 1);
  MemoryReport report = p.memory();
  EXPECT_GT(report.arena, small);
  EXPECT_GT(p.counters().device_bytes, report.feeds);
  p.run();
  expect_equal(p.memory(), p.counters());
}

// A program keeps its Variables alive. When it is destroyed, all its memory is freed.
TEST_P(MemoryReports, FollowWhatIsAllocated) {
  Graph g;
  Variable v("v", Tensor(f32, {64}));
  g.record("v", sum(g.value(v)));
  Program first = compile(g);
  first.run();
  v = Variable();
  expect_equal(first.memory(), first.counters());
  Program second = compile(g);
  second.run();
  std::uint64_t held = second.counters().device_bytes;
  first.run();
  second.run();
  EXPECT_EQ(second.counters().device_bytes, held);
}

}  // namespace
}  // namespace graphsink::testing::memory_report_test
