// Program::stage(): slices that are written where the device fetches them.
#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "messages.h"
#include "program_fixture.h"

namespace graphsink::stage_test {
namespace {

using testing::OnDevice;

constexpr std::int64_t kElements = 5;  // slices of 20 bytes, which are padded

// Adds up a feed, and records each slice.
struct Sums {
  Graph g;
  Value x = g.feed("x", f32, {kElements});
  Variable total{"total", Tensor({0.0f})};
  Sums() {
    g.record("x", x);
    assign(total, g.value(total) + reshape(sum(x), {1}));
  }
};

void fill(const StagedSlices& slices, float first) {
  for (std::int64_t i = 0; i < slices.size(); ++i) {
    std::span<float> elements = slices.slice<float>(i);
    std::iota(elements.begin(), elements.end(), first + static_cast<float>(i) * 100);
  }
}
std::vector<float> filled(std::int64_t slices, float first) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < slices; ++i)
    for (std::int64_t k = 0; k < kElements; ++k) all.push_back(first + static_cast<float>(i * 100 + k));
  return all;
}

TEST_P(OnDevice, StagedSlicesAreReadByTheNextRun) {
  for (Mode mode : testing::kModes) {
    SCOPED_TRACE(to_string(mode));
    Sums sums;
    Program p = compile(sums.g);
    StagedSlices slices = p.stage(sums.x, 3);
    EXPECT_EQ(slices.size(), 3);
    EXPECT_EQ(to_string(slices.type()), "f32[5]");
    EXPECT_EQ(slices.bytes(1).size(), 20u);
    fill(slices, 1);
    p.write(std::move(slices));
    EXPECT_EQ(slices.size(), 0);
    p.run(mode, {.steps = 3});
    EXPECT_EQ(p.records("x"), filled(3, 1));
    // A single slice is for all steps, as it is in write().
    StagedSlices one = p.stage(sums.x, 1);
    fill(one, 7);
    p.write(std::move(one));
    p.run(mode, {.steps = 2});
    std::vector<float> twice = filled(1, 7), again = twice;
    twice.insert(twice.end(), again.begin(), again.end());
    EXPECT_EQ(p.records("x"), twice);
    p.write(sums.x, filled(2, 50));
    p.run(mode, {.steps = 2});
    EXPECT_EQ(p.records("x"), filled(2, 50));
  }
}

// All are staged before the first runs, and written while runs are under way. None waits for the others.
TEST_P(OnDevice, SlicesOfSeveralRunsAreStagedAhead) {
  Sums sums;
  Program p = compile(sums.g);
  std::vector<StagedSlices> ahead;
  std::vector<float> expected;
  for (int run = 0; run < 8; ++run) {
    ahead.push_back(p.stage(sums.x, 4));
    fill(ahead.back(), static_cast<float>(run * 1000));
    const std::vector<float> more = filled(4, static_cast<float>(run * 1000));
    expected.insert(expected.end(), more.begin(), more.end());
  }
  for (StagedSlices& slices : ahead) {
    p.write(std::move(slices));
    p.run(sink, {.steps = 4});
  }
  EXPECT_EQ(p.records("x"), expected);
}

TEST_P(OnDevice, TheHostCopiesNoStagedSlice) {
  Sums sums;
  Program p = compile(sums.g);
  auto run = [&](float first) {
    StagedSlices slices = p.stage(sums.x, 400);
    fill(slices, first);
    p.write(std::move(slices));
    p.run(sink, {.steps = 400});
  };
  run(0);
  run(1);
  p.sync();
  const Counters before = p.counters();
  for (int i = 0; i < 10; ++i) run(static_cast<float>(i));
  p.sync();
  const Counters after = p.counters();
  // What is left are the addresses of the slices, where these change.
  EXPECT_LT(after.host_copied_bytes - before.host_copied_bytes, 10u * 1024u);
  EXPECT_EQ(after.graph_launches - before.graph_launches, 10u);
  EXPECT_EQ(p.steps(), 4800);
}

// The memory of slices that are dropped, on whatever thread, or written, is used again.
TEST_P(OnDevice, MemoryIsUsedAgain) {
  constexpr int kSteps = 400;
  Sums sums;
  Program p = compile(sums.g);
  p.write(sums.x, filled(1, 0));
  p.run();
  for (int round = 0; round < 4; ++round) {
    StagedSlices dropped = p.stage(sums.x, kSteps), kept = p.stage(sums.x, kSteps);
    fill(kept, 1);
    std::thread([slices = std::move(dropped)] { fill(slices, 2); }).join();
    p.write(std::move(kept));
    p.run(sink, {.steps = kSteps});
    p.sync();
  }
  const Counters before = p.counters();
  for (int round = 0; round < 8; ++round) {
    StagedSlices dropped = p.stage(sums.x, kSteps), kept = p.stage(sums.x, kSteps);
    fill(kept, 1);
    p.write(std::move(kept));
    p.run(sink, {.steps = kSteps});
    p.sync();
  }
  EXPECT_EQ(p.counters().host_bytes, before.host_bytes);
  EXPECT_EQ(p.counters().device_bytes, before.device_bytes);
  EXPECT_EQ(p.memory().host_bytes(), before.host_bytes) << to_string(p.memory());
  EXPECT_EQ(p.memory().device_bytes(), before.device_bytes) << to_string(p.memory());
}

TEST_P(OnDevice, ThreadsFillSlicesWhileStepsRun) {
  Sums sums;
  Program p = compile(sums.g);
  std::vector<float> expected;
  for (int run = 0; run < 20; ++run) {
    const auto first = static_cast<float>(run * 1000);
    StagedSlices slices = p.stage(sums.x, 4);
    std::vector<std::thread> threads;
    for (std::int64_t i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        std::span<float> elements = slices.slice<float>(i);
        std::iota(elements.begin(), elements.end(), first + static_cast<float>(i) * 100);
      });
    }
    for (std::thread& thread : threads) thread.join();
    const std::vector<float> more = filled(4, first);
    expected.insert(expected.end(), more.begin(), more.end());
    p.write(std::move(slices));
    p.run(sink, {.steps = 4});
  }
  EXPECT_EQ(p.records("x"), expected);
}

TEST_P(OnDevice, OpenDimensionsTakeAShape) {
  Graph g;
  Value x = g.feed("x", f32, {open(4)});
  g.record("sum", sum(x));
  Program p = compile(g);
  for (std::int64_t size : {4, 7, 2, 7}) {
    StagedSlices slices = p.stage(x, 2, {size});
    EXPECT_EQ(slices.type().shape[0], size);
    for (std::int64_t i = 0; i < 2; ++i)
      for (float& element : slices.slice<float>(i)) element = static_cast<float>(i + 1);
    p.write(std::move(slices));
    p.run(sink, {.steps = 2});
    EXPECT_EQ(p.records("sum"), (std::vector<float>{static_cast<float>(size), static_cast<float>(2 * size)}));
  }
  StagedSlices as_before = p.stage(x, 1);
  EXPECT_EQ(as_before.type().shape[0], 7);
}

// Slices that were staged together, for runs of fewer steps; the last ones are still written while the first are read.
TEST_P(OnDevice, SlicesAreTakenInParts) {
  for (Mode mode : testing::kModes) {
    SCOPED_TRACE(to_string(mode));
    Sums sums;
    Program p = compile(sums.g);
    StagedSlices rest = p.stage(sums.x, 9);
    fill(rest, 1);
    EXPECT_THROW((void)rest.take(0), Error);
    EXPECT_THROW((void)rest.take(10), Error);
    for (std::int64_t steps : {2, 1, 4}) {
      StagedSlices first = rest.take(steps);
      EXPECT_EQ(first.size(), steps);
      p.write(std::move(first));
      p.run(mode, {.steps = steps});
    }
    EXPECT_EQ(rest.size(), 2);
    rest.slice<float>(1)[4] = -5.0f;
    { const StagedSlices dropped = rest.take(1); }
    StagedSlices last = rest.take(1);
    EXPECT_EQ(rest.size(), 0);
    EXPECT_THROW((void)rest.take(1), Error);
    p.write(std::move(last));
    p.run(mode);
    std::vector<float> expected = filled(9, 1);
    expected.erase(expected.begin() + 7 * kElements, expected.begin() + 8 * kElements);
    expected.back() = -5.0f;
    EXPECT_EQ(p.records("x"), expected);
  }
}

// Memory of which a part is still kept is not staged again.
TEST_P(OnDevice, MemoryIsGivenBackOnceAllPartsAre) {
  Sums sums;
  Program p = compile(sums.g);
  StagedSlices rest = p.stage(sums.x, 100);
  fill(rest, 1);
  for (int i = 0; i < 50; ++i) {
    StagedSlices first = rest.take(2), other = p.stage(sums.x, 100);
    fill(other, -1e6f);
    p.write(std::move(first));
    p.run(sink, {.steps = 2});
  }
  EXPECT_EQ(p.records("x"), filled(100, 1));
}

TEST_P(OnDevice, SlicesOutliveTheProgram) {
  std::optional<StagedSlices> slices;
  {
    Sums sums;
    Program p = compile(sums.g);
    slices = p.stage(sums.x, 2);
  }
  fill(*slices, 1);
  EXPECT_EQ(slices->slice<float>(1)[4], 105.0f);
}

TEST_P(OnDevice, StagedSlicesOfNothing) {
  Graph g;
  Value x = g.feed("x", f32, {0, 3});
  g.record("sum", sum(x));
  Program p = compile(g);
  p.write(p.stage(x, 2));
  p.run(sink, {.steps = 2});
  EXPECT_EQ(p.records("sum"), (std::vector<float>{0, 0}));
  EXPECT_EQ(p.stage(x, std::int64_t{1} << 56).size(), std::int64_t{1} << 56);
}

}  // namespace
}  // namespace graphsink::stage_test
