#include "device/step_times.h"

#include <gtest/gtest.h>

#include <vector>

namespace graphsink::step_times_test {
namespace {

constexpr std::uint32_t kCapacity = StepTimes::kCapacity;

void write(StepTimes& times, std::uint64_t tag) {
  times.ring[times.count % kCapacity] = {tag, 10, 1};
  ++times.count;
}

std::vector<std::uint64_t> tags(StepTimes& times, std::uint32_t& next) {
  std::vector<std::uint64_t> tags;
  times.read(next, [&](const StepTime& time) { tags.push_back(time.tag); });
  return tags;
}

TEST(StepTimes, AreReadOnce) {
  StepTimes times;
  std::uint32_t next = 0;
  EXPECT_TRUE(tags(times, next).empty());
  write(times, 1), write(times, 2);
  EXPECT_EQ(tags(times, next), (std::vector<std::uint64_t>{1, 2}));
  write(times, 3);
  EXPECT_EQ(tags(times, next), (std::vector<std::uint64_t>{3}));
  EXPECT_TRUE(tags(times, next).empty());
}

// The place of the oldest may be that of a step that ends just now.
TEST(StepTimes, TheLastAreThere) {
  StepTimes times;
  std::uint32_t next = 0;
  for (std::uint32_t i = 0; i < 3 * kCapacity; ++i) write(times, i);
  auto last = tags(times, next);
  EXPECT_EQ(last.size(), kCapacity - 1);
  EXPECT_EQ(last.front(), 2 * kCapacity + 1);
  EXPECT_EQ(last.back(), 3 * kCapacity - 1);
}

TEST(StepTimes, WhatIsWrittenOverWhileReadingIsLeftOut) {
  StepTimes times;
  std::uint32_t next = 0;
  for (std::uint32_t i = 0; i < 10; ++i) write(times, i);
  std::vector<std::uint64_t> seen;
  times.read(next, [&](const StepTime& time) {
    seen.push_back(time.tag);
    if (time.tag == 1)
      for (std::uint32_t i = 10; i < kCapacity + 5; ++i) write(times, i);  // 0 to 4 are gone, 5 may be in the making
  });
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{0, 1, 6, 7, 8, 9}));
  EXPECT_EQ(tags(times, next).front(), 10u);
}

TEST(StepTimes, CountingGoesRound) {
  StepTimes times;
  std::uint32_t next = times.count = 0u - 2;
  for (std::uint64_t tag : {1, 2, 3, 4}) write(times, tag);
  EXPECT_EQ(tags(times, next), (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(next, 2u);
}

}  // namespace
}  // namespace graphsink::step_times_test
