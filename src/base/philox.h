// Philox4x32-10: Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", with the constants of
// their library Random123. Four random words are a function of a counter and a key: there is no state to advance.
#pragma once

#include <array>
#include <cstdint>

namespace graphsink {

struct PhiloxWords {
  std::uint32_t at[4];
};
struct PhiloxKey {
  std::uint32_t at[2];
};

constexpr PhiloxWords philox(PhiloxWords counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t a = std::uint64_t{0xD2511F53u} * counter.at[0], b = std::uint64_t{0xCD9E8D57u} * counter.at[2];
    counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.at[1] ^ key.at[0], static_cast<std::uint32_t>(b),
                static_cast<std::uint32_t>(a >> 32) ^ counter.at[3] ^ key.at[1], static_cast<std::uint32_t>(a)}};
    key = {{key.at[0] + 0x9E3779B9u, key.at[1] + 0xBB67AE85u}};
  }
  return counter;
}

// Uniform in [0, 1): a multiple of 2^-24 from a word, or of 2^-53 from two.
constexpr float unit_float(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
constexpr double unit_double(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 21) ^ (low >> 11)) * 0x1p-53;
}

}  // namespace graphsink
