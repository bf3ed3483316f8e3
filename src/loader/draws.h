// Random numbers of the loader: functions of a seed, an epoch and a place, without a state.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace graphsink {

// The use of random numbers; those for different purposes do not depend on each other.
enum class Purpose : std::uint32_t { shuffle = 1, shuffle_batches, weights, flip, crop };

// The key for one epoch and purpose; `part` tells several sequences apart, such as those of buckets.
constexpr PhiloxKey key_of(std::uint64_t seed, std::int64_t epoch, Purpose purpose, std::uint32_t part = 0) {
  const auto e = static_cast<std::uint64_t>(epoch);
  const PhiloxWords words = philox(
      {{static_cast<std::uint32_t>(e), static_cast<std::uint32_t>(e >> 32), part, static_cast<std::uint32_t>(purpose)}},
      {{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}});
  return {{words.at[0], words.at[1]}};
}

// Four random words of a place in a sequence.
constexpr PhiloxWords words_at(const PhiloxKey& key, std::int64_t place) {
  const auto p = static_cast<std::uint64_t>(place);
  return philox({{static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(p >> 32), 0, 0}}, key);
}

// A number in [0, n), from two random words: each has a probability of 1 / n up to 2^-64. n is at least 1.
constexpr std::int64_t below(std::uint32_t high, std::uint32_t low, std::int64_t n) {
  // The upper 64 bits of (high, low) * n, from products of 32 bits.
  const std::uint64_t x = std::uint64_t{high} << 32 | low, y = static_cast<std::uint64_t>(n);
  const std::uint64_t middle = (x >> 32) * (y & 0xffffffff) + ((x & 0xffffffff) * (y & 0xffffffff) >> 32);
  const std::uint64_t other = (x & 0xffffffff) * (y >> 32) + (middle & 0xffffffff);
  return static_cast<std::int64_t>((x >> 32) * (y >> 32) + (middle >> 32) + (other >> 32));
}

}  // namespace graphsink
