// Key: what tells the calls of a SinkCache apart.
#pragma once

#include <array>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

class Key;

// A type of your own becomes a part of keys by a function to_key() beside it, which takes a `const T&` and returns a
// Key. Everything that tells two values apart must be in that.
template <class T>
concept HasKey = requires(const T& value) {
  { to_key(value) } -> std::same_as<Key>;
};

// A list of parts: integers, enums, pointers, strings, ranges of these, other keys, and types with a to_key(). Keys are
// compared part by part, never by a hash. Integers compare by value, whatever their types; an enum counts as its
// integer; a pointer compares by its address; `char` arrays and `const char*` are strings. A key of up to seven parts
// that are neither strings nor ranges allocates no memory.
class Key {
 public:
  Key() = default;  // no parts
  // A key of these parts, in their order. Explicit for one part.
  template <class... Parts>
  requires(sizeof...(Parts) > 0) explicit(sizeof...(Parts) == 1) Key(const Parts&... parts) { (add(parts), ...); }

  // Appends a part and returns *this. A range is one part, with its length; so is a key. Does not compile for a type
  // that is none of those above: a float, say, for which std::bit_cast<std::uint32_t>(x) may stand.
  template <class T>
  Key& add(const T& part) {
    if constexpr (std::is_same_v<T, Key>) {
      add_key(part);
    } else if constexpr (std::is_enum_v<T>) {
      add(static_cast<std::underlying_type_t<T>>(part));
    } else if constexpr (std::is_integral_v<T>) {
      static_assert(sizeof(T) <= sizeof(std::uint64_t), "an integer of a key has at most 64 bits");
      const bool is_large = std::is_unsigned_v<T> && static_cast<std::uint64_t>(part) >> 63 != 0;
      push(is_large ? Kind::large : Kind::integer, static_cast<std::uint64_t>(part));
    } else if constexpr (std::is_null_pointer_v<T>) {
      push(Kind::pointer, 0);
    } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      add_string(part);
    } else if constexpr (std::is_pointer_v<T>) {
      push(Kind::pointer, reinterpret_cast<std::uintptr_t>(static_cast<const volatile void*>(part)));
    } else if constexpr (HasKey<T>) {
      add_key(to_key(part));
    } else if constexpr (std::ranges::sized_range<const T&>) {
      push(Kind::list, std::ranges::size(part));
      for (const auto& element : part) add(element);
    } else {
      static_assert(
          !std::is_floating_point_v<T>,
          "a float is no part of a key: pass std::bit_cast<std::uint32_t>(value), or keep the value in device "
          "memory, where a captured graph reads it anew");
      static_assert(HasKey<T>, "no part of a key: write a function `gs::Key to_key(const T&)` beside the type");
    }
    return *this;
  }

  // @{
  // Keys are equal if all their parts are. The order is for maps: it is not that of the parts' values.
  friend bool operator==(const Key& a, const Key& b) { return (a <=> b) == 0; }
  friend std::strong_ordering operator<=>(const Key& a, const Key& b);
  // @}

 private:
  friend std::string to_string(const Key&);

  enum class Kind : std::uint8_t { integer, large, pointer, string, list, key };
  // Words that are stored in place: two for each part, of which the first says what it is.
  // Seven parts of the caller's, to which a cache adds the stream and the device.
  static constexpr std::size_t kInPlace = 18;

  std::uint64_t word(std::size_t i) const { return i < kInPlace ? first_[i] : rest_[i - kInPlace]; }
  void push(std::uint64_t word) {
    if (count_ < kInPlace) {
      first_[count_] = word;
    } else {
      rest_.push_back(word);
    }
    ++count_;
  }
  void push(Kind kind, std::uint64_t value) {
    push(static_cast<std::uint64_t>(kind));
    push(value);
  }
  void add_string(std::string_view text);
  void add_key(const Key& key);
  std::string text_of(std::size_t& at) const;

  std::array<std::uint64_t, kInPlace> first_{};
  std::size_t count_ = 0;
  std::vector<std::uint64_t> rest_;
};

// "{32, 128, 0x7f3c00000000, "decode"}".
std::string to_string(const Key& key);

}  // namespace graphsink
