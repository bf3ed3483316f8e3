// FieldIo: structs that name their fields (fields.h), written to a file and read from it by that one list.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "graphsink/attrs.h"
#include "graphsink/bucket.h"
#include "graphsink/fields.h"
#include "graphsink/type.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Writes the values that it is given, or reads others into their place. A reader throws Error, naming the file and the
// field, for a value that is missing, of another kind or out of range.
class FieldIo {
 public:
  // Whether values are read: those that are given are overwritten then, and only then.
  virtual bool is_reading() const = 0;
  // A struct: for each field its name, then its value. Names that a reader was not asked for are refused at the end.
  virtual void begin_struct() = 0;
  virtual void name(std::string_view name) = 0;  // name of the field that follows
  virtual void end_struct() = 0;                 // after the last field
  // A list of `size` elements; a reader returns how many there are. They follow.
  virtual std::size_t begin_list(std::size_t size) = 0;
  virtual void end_list() = 0;  // after the last element
  // An optional: whether it has a value, which then follows.
  virtual bool has_value(bool has) = 0;
  virtual void flag(bool& is) = 0;  // true or false
  // A number from `least` to `most`: a reader refuses others, a writer does not look.
  virtual void integer(std::int64_t& number, std::int64_t least, std::int64_t most) = 0;
  // A number from 0 to `most`, likewise. Above 2^63 - 1, too.
  virtual void natural(std::uint64_t& number, std::uint64_t most) = 0;
  // With all bits, those of infinities and NaNs, too.
  virtual void real(double& number) = 0;
  virtual void text(std::string& text) = 0;  // in UTF-8: a writer refuses other texts
  // Throws Error for the value that was read last: "a dtype: expected ..., seen ...".
  [[noreturn]] virtual void refuse(const std::string& problem) const = 0;

 protected:
  ~FieldIo() = default;
};

// @{
// Values of these types are written as their texts, shapes as lists of sizes, and types as structs of both. Read ones
// are refused as FieldIo does.
void transfer(FieldIo& io, DType& dtype);
void transfer(FieldIo& io, Shape& shape);
void transfer(FieldIo& io, TensorType& type);
void transfer(FieldIo& io, Bucket& bucket);
// @}

// Writes or reads the fields of a struct that names them, without its begin and end.
template <class T>
void transfer_fields(FieldIo& io, T& x);

// Writes or reads a value of any type that a field may have: those of transfer(), structs that name their fields,
// numbers, booleans, texts, enums, and lists and optionals of these; other types do not compile, unless they are empty.
// Enums are written as their numbers; an op whose attributes have one checks in its infer that it is one of them.
template <class T>
void transfer_value(FieldIo& io, T& x) {
  if constexpr (requires { transfer(io, x); }) {
    transfer(io, x);
  } else if constexpr (requires { T::fields(x); }) {
    io.begin_struct();
    transfer_fields(io, x);
    io.end_struct();
  } else if constexpr (std::same_as<T, bool>) {
    io.flag(x);
  } else if constexpr (std::is_enum_v<T>) {
    auto number = static_cast<std::underlying_type_t<T>>(x);
    transfer_value(io, number);
    x = static_cast<T>(number);
  } else if constexpr (std::unsigned_integral<T>) {
    std::uint64_t number = x;
    io.natural(number, std::numeric_limits<T>::max());
    x = static_cast<T>(number);
  } else if constexpr (std::integral<T>) {
    std::int64_t number = x;
    io.integer(number, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
    x = static_cast<T>(number);
  } else if constexpr (detail::is_floating<T>) {
    auto number = static_cast<double>(x);
    io.real(number);
    x = static_cast<T>(number);
  } else if constexpr (std::same_as<T, std::string>) {
    io.text(x);
  } else if constexpr (detail::is_list<T>) {
    const std::size_t size = io.begin_list(std::size(x));
    if constexpr (requires { x.emplace_back(); }) {
      if (io.is_reading()) x.clear();
      for (std::size_t i = 0; i < size; ++i) transfer_value(io, io.is_reading() ? x.emplace_back() : x[i]);
    } else {
      if (size != std::size(x))
        io.refuse("expected " + std::to_string(std::size(x)) + " elements, seen " + std::to_string(size));
      for (auto& element : x) transfer_value(io, element);
    }
    io.end_list();
  } else if constexpr (detail::is_optional<T>) {
    const bool has = io.has_value(x.has_value());
    if (io.is_reading()) x.reset();
    if (has) transfer_value(io, io.is_reading() ? x.emplace() : *x);
  } else {
    static_assert(std::is_empty_v<T>, "a struct in a file names its fields (fields.h)");
  }
}

template <class T>
void transfer_fields(FieldIo& io, T& x) {
  [&]<std::size_t... i>(std::index_sequence<i...>, const auto& fields) {
    ((io.name(std::get<2 * i>(fields)), transfer_value(io, std::get<2 * i + 1>(fields))), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<decltype(T::fields(x))> / 2>(), T::fields(x));
}

// How the attributes of an op are written and read: attrs_io<T> for a struct that names its fields, or two functions,
// where the file holds another struct, such as the one of an older version of the op.
struct AttrsIo {
  void (*write)(FieldIo& io, const Attrs& attrs) = nullptr;  // writes one value, by transfer_value()
  Attrs (*read)(FieldIo& io) = nullptr;                      // reads that
};

// The functions for attributes of type T.
template <class T>
inline constexpr AttrsIo attrs_io = {[](FieldIo& io, const Attrs& attrs) {
                                       T copy = attrs.as<T>();
                                       transfer_value(io, copy);
                                     },
                                     [](FieldIo& io) -> Attrs {
                                       T x{};
                                       transfer_value(io, x);
                                       return x;
                                     }};

}  // namespace graphsink
