#include "graphsink/field_io.h"

#include <charconv>
#include <optional>
#include <vector>

#include "base/printable.h"

namespace graphsink {
namespace {

constexpr DType kDTypes[] = {DType::f32, DType::f64,  DType::i32, DType::boolean,
                             DType::f16, DType::bf16, DType::i64, DType::u8};

std::string seen(std::string_view text) { return ", seen \"" + shortened(text) + "\""; }

// The numbers of "16, 32, 64"; nothing if it is no such list.
std::optional<std::vector<std::int64_t>> numbers_of(std::string_view text) {
  std::vector<std::int64_t> numbers;
  while (true) {
    std::int64_t number = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc() || number < 1) return {};
    numbers.push_back(number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return numbers;
    if (!text.starts_with(", ")) return {};
    text.remove_prefix(2);
  }
}

// The bucket of to_string(Bucket).
std::optional<Bucket> bucket_of(std::string_view text) {
  constexpr std::string_view kMultiples = "multiples of ", kOneOf = "one of ";
  if (text == to_string(Bucket())) return Bucket();
  if (text == to_string(next_power_of_two())) return next_power_of_two();
  if (text.starts_with(kMultiples)) {
    const auto step = numbers_of(text.substr(kMultiples.size()));
    if (step && step->size() == 1) return multiples_of(step->front());
  } else if (text.starts_with(kOneOf)) {
    if (auto sizes = numbers_of(text.substr(kOneOf.size()))) return one_of(std::move(*sizes));
  }
  return {};
}

}  // namespace

void transfer(FieldIo& io, DType& dtype) {
  std::string text(io.is_reading() ? std::string_view() : to_string(dtype));
  io.text(text);
  for (DType known : kDTypes)
    if (to_string(known) == text) return void(dtype = known);
  io.refuse("expected a dtype, such as \"f32\"" + seen(text));
}

void transfer(FieldIo& io, Shape& shape) {
  const std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  const std::size_t rank = io.begin_list(dims.size());
  if (rank > Shape::kMaxRank)
    io.refuse("expected at most " + std::to_string(Shape::kMaxRank) + " sizes, seen " + std::to_string(rank));
  Shape result;
  for (std::size_t d = 0; d < rank; ++d) {
    std::int64_t size = io.is_reading() ? 0 : dims[d];
    io.integer(size, 0, std::numeric_limits<std::int64_t>::max());
    result.push_back(size);
  }
  io.end_list();
  shape = result;
}

void transfer(FieldIo& io, TensorType& type) {
  io.begin_struct();
  io.name("dtype");
  transfer(io, type.dtype);
  io.name("shape");
  transfer(io, type.shape);
  io.end_struct();
}

void transfer(FieldIo& io, Bucket& bucket) {
  std::string text = io.is_reading() ? std::string() : to_string(bucket);
  io.text(text);
  if (!io.is_reading()) return;
  std::optional<Bucket> known = bucket_of(text);
  if (!known) io.refuse("expected a rule for sizes, such as \"multiples of 64\"" + seen(text));
  bucket = std::move(*known);
}

}  // namespace graphsink
