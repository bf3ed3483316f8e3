// Some ops move elements without reading their values. They move words: a word is one element, or several neighbours
// that stay together.
#pragma once

#include <cstddef>
#include <cstring>
#include <numeric>
#include <type_traits>

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

// Copies a row of `count` elements; the two must not overlap. Rows are often so short that calling memcpy() takes
// longer than copying them. Those are copied in pieces of fixed length; the last piece ends where the row ends and
// overlaps the one before.
template <class T>
void copy_row(T* to, const T* from, std::int64_t count) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  auto* out = reinterpret_cast<std::byte*>(to);
  const auto* in = reinterpret_cast<const std::byte*>(from);
  auto in_pieces = [&]<std::size_t piece>(std::integral_constant<std::size_t, piece>) {
    for (std::size_t i = 0; i + piece < bytes; i += piece) std::memcpy(out + i, in + i, piece);
    std::memcpy(out + bytes - piece, in + bytes - piece, piece);
  };
  constexpr std::size_t kShort = 512;
  if (bytes > kShort) {
    std::memcpy(out, in, bytes);
  } else if (bytes >= 64) {
    in_pieces(std::integral_constant<std::size_t, 64>());
  } else if (bytes >= 16) {
    in_pieces(std::integral_constant<std::size_t, 16>());
  } else if (bytes >= 8) {
    in_pieces(std::integral_constant<std::size_t, 8>());
  } else if (bytes >= 4) {
    in_pieces(std::integral_constant<std::size_t, 4>());
  } else {
    for (std::size_t i = 0; i < bytes; ++i) out[i] = in[i];
  }
}

// Copies `rows` rows of `count` elements. They begin `to_pitch` and `from_pitch` elements apart.
template <class T>
void copy_rows(T* to, std::int64_t to_pitch, const T* from, std::int64_t from_pitch, std::int64_t rows,
               std::int64_t count) {
  for_each_index(rows, [=](std::int64_t r) { copy_row(to + r * to_pitch, from + r * from_pitch, count); });
}

}  // namespace graphsink
