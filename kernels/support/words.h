// Some ops move elements without reading their values. They move words: a word is one element, or several neighbours
// that stay together.
#pragma once

#include <cstring>
#include <numeric>

#include "kernels/support/copy.h"

namespace graphsink {

// Returns the largest word size, at most 16 bytes, that divides all these numbers of bytes.
inline int word_size(std::initializer_list<std::int64_t> bytes) {
  std::int64_t word = 16;
  for (std::int64_t b : bytes) word = std::gcd(word, b);
  return static_cast<int>(word);
}

// Returns the size of a single element as a word.
inline int word_size(DType dtype) { return static_cast<int>(size_of(dtype)); }

// Calls `f` with a word of `bytes` bytes.
template <class F>
void with_word(int bytes, const F& f) {
  switch (bytes) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    case 8:
      return f(std::uint64_t{});
    default:
      return f(Words{});
  }
}

}  // namespace graphsink
