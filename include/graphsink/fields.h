// Structs that name their fields once, as attributes of ops do: they are compared and printed by this one list. An
// aggregate names all of its members, else it does not compile.
//
//   struct PadAttrs {
//     std::vector<std::int64_t> before, after;
//     double value;
//     static auto fields(auto& s) { return std::tie("before", s.before, "after", s.after, "value", s.value); }
//   };
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "graphsink/half.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Receives the fields of a struct, in their order: for each its name, then its value.
class FieldVisitor {
 public:
  virtual void name(std::string_view name) = 0;  // name of the field that follows
  // @{
  // A value: other integers and floating-point numbers come as the widest type, enums as their texts or numbers.
  virtual void value(bool is) = 0;
  virtual void value(std::int64_t number) = 0;
  virtual void value(std::uint64_t number) = 0;
  virtual void value(double number) = 0;
  virtual void value(std::string_view text) = 0;
  // @}
  virtual void no_value() = 0;  // an optional without a value, or a value of a type that has no text
  // A field that is a struct: its fields follow.
  virtual void begin_struct() = 0;
  virtual void end_struct() = 0;  // after the last field
  // A list: as many of its elements follow as begin_list() returns, which is at most `size`.
  virtual std::size_t begin_list(std::size_t size) = 0;
  virtual void end_list(std::size_t size) = 0;  // after these elements, with the `size` of begin_list()

 protected:
  ~FieldVisitor() = default;
};

// A struct with a static function fields(auto& s), which returns a std::tie() of names and members in turn.
template <class T>
concept NamesFields = requires(const T& x) {
  T::fields(x);
};

namespace detail {

template <class T>
constexpr bool kNamesFieldsOfMutable = !NamesFields<T> && requires(T & x) {
  T::fields(x);
};

template <class T>
constexpr std::size_t kFields = std::tuple_size_v<decltype(T::fields(std::declval<const T&>()))> / 2;

template <std::size_t n>
using Count = std::integral_constant<std::size_t, n>;
void bind_members(const auto& x, Count<1>) { [[maybe_unused]] const auto& [a] = x; }
void bind_members(const auto& x, Count<2>) { [[maybe_unused]] const auto& [a, b] = x; }
void bind_members(const auto& x, Count<3>) { [[maybe_unused]] const auto& [a, b, c] = x; }
void bind_members(const auto& x, Count<4>) { [[maybe_unused]] const auto& [a, b, c, d] = x; }
void bind_members(const auto& x, Count<5>) { [[maybe_unused]] const auto& [a, b, c, d, e] = x; }
void bind_members(const auto& x, Count<6>) { [[maybe_unused]] const auto& [a, b, c, d, e, f] = x; }
void bind_members(const auto& x, Count<7>) { [[maybe_unused]] const auto& [a, b, c, d, e, f, g] = x; }
void bind_members(const auto& x, Count<8>) { [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h] = x; }
void bind_members(const auto& x, Count<9>) { [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i] = x; }
void bind_members(const auto& x, Count<10>) { [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j] = x; }

// Does not compile if the struct has more or fewer members than fields: two structs that differ in a member without a
// name would be taken for equal. Nor does it if a member is private, is one of a base, or is a bit-field, to which
// there is no reference.
template <class T>
void expect_all_members(const T& x) {
  constexpr std::size_t n = kFields<T>;
  static_assert(std::tuple_size_v<decltype(T::fields(std::declval<T&>()))> == 2 * n,
                "fields() gives a name before each member");
  if constexpr (!std::is_empty_v<T>) {
    static_assert(n <= 10, "at most 10 members are counted: put some of them into a struct of their own");
    bind_members(x, Count<n>());
  }
}

template <class T>
constexpr bool is_floating = std::is_floating_point_v<T> || std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;

template <class T>
constexpr bool is_list = std::is_array_v<T>;
template <class T, class Allocator>
constexpr bool is_list<std::vector<T, Allocator>> = true;
template <class T, std::size_t n>
constexpr bool is_list<std::array<T, n>> = true;

template <class T>
constexpr bool is_optional = false;
template <class T>
constexpr bool is_optional<std::optional<T>> = true;

}  // namespace detail

// Whether two values are equal, bit for bit where they are floating-point numbers: 0.0 differs from -0.0, and a NaN
// equals itself. Structs that name their fields are compared field by field, lists and optionals element by element,
// and all else by operator==. Values of a type without operator== differ, unless the type is empty.
template <class T>
bool is_same_value(const T& a, const T& b) {
  if constexpr (NamesFields<T>) {
    detail::expect_all_members(a);
    return [&]<std::size_t... i>(std::index_sequence<i...>, const auto& x, const auto& y) {
      return (is_same_value(std::get<2 * i + 1>(x), std::get<2 * i + 1>(y)) && ...);
    }
    (std::make_index_sequence<detail::kFields<T>>(), T::fields(a), T::fields(b));
  } else if constexpr (detail::is_floating<T>) {
    return std::memcmp(&a, &b, sizeof a) == 0;
  } else if constexpr (detail::is_list<T>) {
    return std::equal(std::begin(a), std::end(a), std::begin(b), std::end(b),
                      [](const auto& x, const auto& y) { return is_same_value(x, y); });
  } else if constexpr (detail::is_optional<T>) {
    return a && b ? is_same_value(*a, *b) : a.has_value() == b.has_value();
  } else {
    static_assert(!detail::kNamesFieldsOfMutable<T>, "fields() takes auto& s, which may be const");
    if constexpr (std::equality_comparable<T>) return a == b;
    return std::is_empty_v<T>;
  }
}

template <class T>
void visit_value(FieldVisitor& visitor, const T& x);

// Passes name and value of each field to the visitor, in their order, without a begin and end.
template <NamesFields T>
void visit_fields(FieldVisitor& visitor, const T& x) {
  [&]<std::size_t... i>(std::index_sequence<i...>, const auto& fields) {
    ((visitor.name(std::get<2 * i>(fields)), visit_value(visitor, std::get<2 * i + 1>(fields))), ...);
  }
  (std::make_index_sequence<detail::kFields<T>>(), T::fields(x));
}

// Passes a value of any type to the visitor. Enums and other types are passed on as text if there is a to_string() for
// them in their namespace.
template <class T>
void visit_value(FieldVisitor& visitor, const T& x) {
  if constexpr (NamesFields<T>) {
    visitor.begin_struct();
    visit_fields(visitor, x);
    visitor.end_struct();
  } else if constexpr (std::same_as<T, bool> || std::same_as<T, double>) {
    visitor.value(x);
  } else if constexpr (std::unsigned_integral<T>) {
    visitor.value(static_cast<std::uint64_t>(x));
  } else if constexpr (std::integral<T>) {
    visitor.value(static_cast<std::int64_t>(x));
  } else if constexpr (detail::is_floating<T>) {
    visitor.value(static_cast<double>(x));
  } else if constexpr (std::convertible_to<const T&, std::string_view>) {
    visitor.value(std::string_view(x));
  } else if constexpr (detail::is_list<T>) {
    const std::size_t size = std::size(x), wanted = visitor.begin_list(size);
    for (std::size_t i = 0; i < wanted; ++i) visit_value(visitor, x[i]);
    visitor.end_list(size);
  } else if constexpr (detail::is_optional<T>) {
    x ? visit_value(visitor, *x) : visitor.no_value();
  } else if constexpr (requires { std::string_view(to_string(x)); }) {
    visitor.value(std::string_view(to_string(x)));
  } else if constexpr (std::is_enum_v<T>) {
    visitor.value(static_cast<std::int64_t>(x));
  } else {
    visitor.no_value();
  }
}

}  // namespace graphsink
