// Arenas of the CPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "device/device.h"

namespace graphsink::cpu_arena_test {
namespace {

// By which processors of AMD find a line of the first-level cache (Lipp et al. 2020, "Take A Way", for Zen 2).
unsigned hash_of(const std::byte* address) {
  constexpr int kPairs[][2] = {{12, 27}, {13, 26}, {14, 25}, {15, 20}, {16, 21}, {17, 22}, {18, 23}, {19, 24}};
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  unsigned hash = 0;
  for (const auto& [a, b] : kPairs) hash = hash * 2 + (((bits >> a) ^ (bits >> b)) & 1);
  return hash;
}

TEST(CpuArena, LinesOfDifferentArenasDoNotHaveTheSameHash) {
  const std::shared_ptr<Device> device = open_device(cpu());
  std::vector<std::unique_ptr<Arena>> arenas;
  std::set<unsigned> seen;
  for (int i = 0; i < 3; ++i) {
    arenas.push_back(device->reserve());
    arenas.back()->grow(1 << 16);
    EXPECT_TRUE(seen.insert(hash_of(arenas.back()->base())).second) << "arena " << i;
  }
}

}  // namespace
}  // namespace graphsink::cpu_arena_test
