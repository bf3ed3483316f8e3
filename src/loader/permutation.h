// Permutation: the numbers 0 to size - 1 in a random order, each computed alone, in constant memory and time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/philox.h"

namespace graphsink {

// A Feistel network (Luby and Rackoff 1988) is a permutation of the numbers of `bits` bits whatever its round function
// is; here it is Philox. A number of at least `size` is put in again, until one below `size` comes out (cycle walking,
// Black and Rogaway 2002): the network permutes these as well, and there is always one, because the cycle of a number
// below `size` comes back to it. There are fewer than twice as many numbers as samples, except for the smallest sizes,
// which use at least 8 bits: a network of fewer has few permutations to choose from.
class Permutation {
 public:
  // `size` is at least 1 and at most 2^62.
  constexpr Permutation(std::int64_t size, const PhiloxKey& key) : size_(static_cast<std::uint64_t>(size)), key_(key) {
    const int bits = std::max(8, static_cast<int>(std::bit_width(size_ - 1)));
    low_bits_ = bits / 2;
    low_mask_ = static_cast<std::uint32_t>((std::uint64_t{1} << low_bits_) - 1);
    high_mask_ = static_cast<std::uint32_t>((std::uint64_t{1} << (bits - low_bits_)) - 1);
  }

  // `position` is in [0, size).
  constexpr std::int64_t operator[](std::int64_t position) const {
    auto x = static_cast<std::uint64_t>(position);
    do {
      x = once(x);
    } while (x >= size_);
    return static_cast<std::int64_t>(x);
  }

 private:
  // Four rounds are enough for large sizes (Luby and Rackoff); small ones need more.
  static constexpr std::uint32_t kRounds = 10;

  constexpr std::uint64_t once(std::uint64_t x) const {
    auto low = static_cast<std::uint32_t>(x) & low_mask_, high = static_cast<std::uint32_t>(x >> low_bits_);
    for (std::uint32_t round = 0; round < kRounds; round += 2) {
      low ^= philox({{high, round, 0, 1}}, key_).at[0] & low_mask_;
      high ^= philox({{low, round + 1, 0, 1}}, key_).at[0] & high_mask_;
    }
    return std::uint64_t{high} << low_bits_ | low;
  }

  std::uint64_t size_;
  PhiloxKey key_;
  int low_bits_ = 0;
  std::uint32_t low_mask_ = 0, high_mask_ = 0;
};

}  // namespace graphsink
