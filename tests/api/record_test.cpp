// Records: how many values are kept until they are read, and which values are lost.
#include <gtest/gtest.h>

#include "program_fixture.h"

namespace graphsink::record_test {
namespace {

using testing::kModes;
using testing::OnDevice;

TEST_P(OnDevice, LostRecordsAreCountedAndLoggedOnce) {
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    std::vector<std::string> log;
    Graph g;
    g.record("step", cast(g.step(), f32), {.capacity = 4});
    g.record("half", cast(g.step(), f32) * 0.5);
    Program p = compile(g, {.log = [&](LogLevel, std::string_view message) { log.emplace_back(message); }});
    p.run(mode, {.steps = 4});
    EXPECT_EQ(p.records("step"), (std::vector<float>{0, 1, 2, 3}));
    EXPECT_EQ(p.lost_records("step"), 0);
    EXPECT_TRUE(log.empty());
    p.run(mode, {.steps = 10});
    EXPECT_EQ(p.records("step"), (std::vector<float>{10, 11, 12, 13}));
    EXPECT_EQ(p.lost_records("step"), 6);
    ASSERT_EQ(log.size(), 1u);
    EXPECT_NE(log[0].find("record \"step\": 6 values were lost"), std::string::npos) << log[0];
    p.run(mode, {.steps = 5});
    p.sync();
    EXPECT_EQ(p.try_records("step"), (std::vector<float>{16, 17, 18})) << "the oldest might be in the making";
    EXPECT_EQ(p.lost_records("step"), 8);
    EXPECT_EQ(log.size(), 1u);
    EXPECT_EQ(p.records("half").size(), 19u);
    EXPECT_EQ(p.lost_records("half"), 0);
  }
}

TEST_P(OnDevice, ManyRecordsShareTheirMemoryUnlessTheyAskForMore) {
  Graph g;
  std::vector<Value> values;
  for (int i = 0; i < 4; ++i) values.push_back(cast(g.step(), f32) + i);
  for (int i = 0; i < 200; ++i) g.record("r" + std::to_string(i), values[static_cast<std::size_t>(i % 4)]);
  g.record("long", cast(g.step(), f32), {.capacity = 100'000});
  Program p = compile(g);
  EXPECT_LE(p.memory().records, (std::size_t{8} << 20) + (std::size_t{1} << 20));
  p.run(sink, {.steps = 3000});
  for (int i : {0, 127, 128, 199}) {  // 200 records do not fit into one launch of the kernel that stores them
    std::vector<float> seen = p.records("r" + std::to_string(i));
    ASSERT_EQ(seen.size(), 3000u);
    EXPECT_EQ(seen.front(), static_cast<float>(i % 4));
    EXPECT_EQ(seen.back(), static_cast<float>(2999 + i % 4));
  }
  EXPECT_EQ(p.records("long").size(), 3000u);
}

// Step n records n, n + 1/4, ... as f32, f16 and f64, and between them one number.
TEST_P(OnDevice, ARecordHoldsVectors) {
  constexpr std::int64_t kElements = 100;  // more than the threads of the kernel that stores them
  std::vector<float> quarters;
  for (int k = 0; k < kElements; ++k) quarters.push_back(static_cast<float>(k) * 0.25f);
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    const Value step = cast(g.step(), f32), line = g.constant(Tensor({kElements}, quarters)) + step;
    g.record("f32", line);
    g.record("step", step);
    g.record("f16", cast(slice(line, {0}, {3}), f16), {.capacity = 4});
    g.record("f64", cast(reshape(line, {4, 25}), f64));
    Program p = compile(g);
    p.run(mode, {.steps = 3});
    const std::vector<float> lines = p.records("f32");
    ASSERT_EQ(lines.size(), 3u * kElements);
    for (std::size_t i = 0; i < lines.size(); ++i)
      ASSERT_EQ(lines[i], static_cast<float>(i / kElements) + quarters[i % kElements]) << i;
    EXPECT_EQ(p.records("step"), (std::vector<float>{0, 1, 2}));
    EXPECT_EQ(p.records<double>("f64"), std::vector<double>(lines.begin(), lines.end()));
    p.run(mode, {.steps = 3});
    EXPECT_EQ(p.records("f16"), (std::vector<float>{2, 2.25, 2.5, 3, 3.25, 3.5, 4, 4.25, 4.5, 5, 5.25, 5.5}));
    EXPECT_EQ(p.lost_records("f16"), 2) << "values, not elements";
    p.run(mode, {.steps = 5});
    p.sync();
    EXPECT_EQ(p.try_records("f16"), (std::vector<float>{8, 8.25, 8.5, 9, 9.25, 9.5, 10, 10.25, 10.5}));
    EXPECT_EQ(p.lost_records("f16"), 4);
  }
}

TEST_P(OnDevice, RecordsOfVectorsShareTheirMemory) {
  Graph g;
  const Value x = g.constant(Tensor({kMaxRecordElements}, std::vector<float>(kMaxRecordElements, 1.0f)));
  for (int i = 0; i < 3; ++i) g.record("r" + std::to_string(i), x);
  g.record("number", sum(x));
  EXPECT_LE(compile(g).memory().records, std::size_t{8} << 20);
}

TEST_P(OnDevice, AGraphWithoutRecordsHasNoRings) {
  Graph g;
  g.output("step", g.step());
  Program p = compile(g);
  EXPECT_LE(p.memory().records, 256u);
  p.run();
  EXPECT_EQ(p.output("step").at(0), 0.0);
}

TEST(Records, ACapacityIsChecked) {
  Graph g;
  Value x = sum(g.feed("x", f32, {1}));
  EXPECT_THROW(g.record("x", x, {.capacity = -1}), Error);
  EXPECT_THROW(g.record("x", x, {.capacity = kMaxRecordCapacity + 1}), Error);
  g.record("x", x, {.capacity = 1});
  EXPECT_THROW((void)compile(g).lost_records("y"), Error);
}

}  // namespace
}  // namespace graphsink::record_test
