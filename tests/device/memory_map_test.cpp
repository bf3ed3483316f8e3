// Which addresses hold memory.
#include "device/memory_map.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace graphsink::memory_map_test {
namespace {

constexpr std::uintptr_t kBase = 1 << 20;

const void* at(std::uintptr_t offset) { return reinterpret_cast<const void*>(kBase + offset); }

TEST(MemoryMap, KnowsNothingAtFirstAndThenTheLastThatWasSaid) {
  MemoryMap map;
  EXPECT_EQ(map.find(kBase), MemoryState::unknown);
  map.set(at(0), 100, MemoryState::live);
  map.set(at(20), 10, MemoryState::gone);
  map.set(at(50), 0, MemoryState::gone);
  EXPECT_EQ(map.find(kBase - 1), MemoryState::unknown);
  EXPECT_EQ(map.find(kBase + 19), MemoryState::live);
  EXPECT_EQ(map.find(kBase + 20), MemoryState::gone);
  EXPECT_EQ(map.find(kBase + 29), MemoryState::gone);
  EXPECT_EQ(map.find(kBase + 30), MemoryState::live);
  EXPECT_EQ(map.find(kBase + 50), MemoryState::live);
  EXPECT_EQ(map.find(kBase + 100), MemoryState::unknown);
}

TEST(MemoryMap, IsWhatAnArrayOfStatesWouldBe) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    MemoryMap map;
    std::vector<MemoryState> wanted(64, MemoryState::unknown);
    for (int i = 0; i < 30; ++i) {
      std::size_t begin = random() % 64, bytes = random() % (65 - begin);
      auto state = random() % 2 ? MemoryState::live : MemoryState::gone;
      map.set(at(begin), bytes, state);
      for (std::size_t k = begin; k < begin + bytes; ++k) wanted[k] = state;
      for (std::size_t k = 0; k < 64; ++k) ASSERT_EQ(map.find(kBase + k), wanted[k]) << "seed " << seed << ", " << k;
    }
  }
}

}  // namespace
}  // namespace graphsink::memory_map_test
