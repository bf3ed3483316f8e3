#include "graphsink/tensor.h"

#include <algorithm>
#include <cmath>
#include <locale>
#include <new>
#include <ostream>
#include <string>
#include <type_traits>

#include "base/convert.h"
#include "base/number_text.h"

#include "graphsink/error.h"

namespace graphsink {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): the same sequence on every machine, unlike std:: distributions.
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}
  // Uniform in [0, 1), 24 bits.
  float uniform() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<float>((z ^ (z >> 31)) >> 40) * 0x1p-24f;
  }

 private:
  std::uint64_t state_;
};

template <class T>
void fill(Tensor& tensor, double value) {
  for (T& x : tensor.as<T>()) x = static_cast<T>(value);
}

// Calls f with an element of the dtype's C++ type.
template <class F>
void with_element_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::f16:
      return f(half{});
    case DType::bf16:
      return f(bfloat16{});
    case DType::i64:
      return f(std::int64_t{});
    case DType::u8:
      return f(std::uint8_t{});
    case DType::boolean:
      return f(bool{});
  }
}

struct Fans {
  std::int64_t in = 1, out = 1;
};
// Fan-in and fan-out of a shape that has elements.
Fans fans(const Shape& shape, OutputAxis outputs) {
  if (shape.rank() < 2) return {1, shape.size()};
  if (outputs == OutputAxis::by_rank) outputs = shape.rank() == 2 ? OutputAxis::last : OutputAxis::first;
  const int last = shape.rank() - 1;
  const std::int64_t in = outputs == OutputAxis::first ? shape[1] : shape[last - 1];
  const std::int64_t out = outputs == OutputAxis::first ? shape[0] : shape[last];
  return {shape.size() / out, shape.size() / in};
}

// Natural logarithm of a number above 0. Those of C libraries differ in the last bit: here are only operations that
// IEEE 754 rounds.
double natural_logarithm(double x) {
  constexpr double kLog2 = 0x1.62e42fefa39efp-1, kRootOfHalf = 0x1.6a09e667f3bcdp-1;
  int exponent;
  double m = std::frexp(x, &exponent);
  if (m < kRootOfHalf) m *= 2, --exponent;
  // log(m) = 2 atanh(s) = 2 (s + s^3 / 3 + s^5 / 5 + ...), where |s| <= 0.172.
  const double s = (m - 1) / (m + 1);
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * (s * s) + 1.0 / k;
  return exponent * kLog2 + 2 * s * sum;
}

}  // namespace

Tensor::Tensor(const TensorType& type, Where where) : type_(type) {
  std::size_t bytes = type.bytes(where);
  try {
    bytes_.resize(bytes);
  } catch (const std::bad_alloc&) {
    throw Error("Tensor", where, "there is not enough memory for " + to_string(type), "use smaller sizes",
                ErrorCode::out_of_memory);
  }
}

bool holds(DType dtype, double x) {
  bool result = false;
  with_element_type(dtype, [&]<class T>(T) { result = holds<T>(x); });
  return result;
}

Tensor Tensor::full(DType dtype, const Shape& shape, double value, Where where) {
  if (!holds(dtype, value)) {
    throw Error("Tensor::full", where, std::string(to_string(dtype)) + " cannot hold " + number_text(value),
                "pass a number of the dtype, or use to() on a tensor of another dtype");
  }
  Tensor tensor(dtype, shape, where);
  with_element_type(dtype, [&]<class T>(T) { fill<T>(tensor, value); });
  return tensor;
}

Tensor Tensor::kaiming(const Shape& shape, std::uint64_t seed, OutputAxis outputs, Where where) {
  if (shape.size(where) == 0) return Tensor(DType::f32, shape, where);
  float bound = std::sqrt(6.0f / static_cast<float>(fans(shape, outputs).in));
  return uniform(shape, seed, -bound, bound, where);
}

Tensor Tensor::xavier(const Shape& shape, std::uint64_t seed, OutputAxis outputs, Where where) {
  if (shape.size(where) == 0) return Tensor(DType::f32, shape, where);
  const Fans fan = fans(shape, outputs);
  float bound = std::sqrt(6.0f / static_cast<float>(fan.in + fan.out));
  return uniform(shape, seed, -bound, bound, where);
}

namespace {
void expect_finite(const char* op, const char* what, float x, const Where& where) {
  if (!std::isfinite(x)) throw Error(op, where, std::string(what) + " is " + number_text(x), "pass a finite f32");
}
}  // namespace

Tensor Tensor::uniform(const Shape& shape, std::uint64_t seed, float low, float high, Where where) {
  constexpr const char* kOp = "Tensor::uniform";
  expect_finite(kOp, "the lower bound", low, where);
  expect_finite(kOp, "the upper bound", high, where);
  expect_finite(kOp, "the upper bound less the lower", high - low, where);
  if (low > high)
    throw Error(kOp, where, "the lower bound, " + number_text(low) + ", is above the upper, " + number_text(high),
                "change their order");
  Tensor tensor(DType::f32, shape, where);
  SplitMix random(seed);
  for (float& x : tensor.as<float>()) x = low + (high - low) * random.uniform();
  return tensor;
}

Tensor Tensor::normal(const Shape& shape, std::uint64_t seed, float mean, float deviation, Where where) {
  constexpr const char* kOp = "Tensor::normal";
  expect_finite(kOp, "the mean", mean, where);
  expect_finite(kOp, "the deviation", deviation, where);
  if (deviation < 0) throw Error(kOp, where, "the deviation is " + number_text(deviation), "pass one of at least 0");
  Tensor tensor(DType::f32, shape, where);
  SplitMix random(seed);
  std::span<float> elements = tensor.as<float>();
  for (std::size_t i = 0; i < elements.size(); i += 2) {
    // A point in the unit circle but not in its centre: its direction and its distance are independent.
    double x, y, square;
    do {
      x = 2 * double{random.uniform()} - 1;
      y = 2 * double{random.uniform()} - 1;
      square = x * x + y * y;
    } while (square >= 1 || square == 0);
    const double factor = std::sqrt(-2 * natural_logarithm(square) / square);
    auto put = [&](std::size_t k, double sample) { elements[k] = static_cast<float>(mean + deviation * sample); };
    put(i, x * factor);
    if (i + 1 < elements.size()) put(i + 1, y * factor);
  }
  return tensor;
}

void Tensor::require_valid(const std::string& op, const Where& where) const {
  if (valid()) return;
  throw Error(op, where, "a default-constructed or moved-from Tensor, which has no data",
              "make it from a type or from values");
}

double Tensor::item(Where where) const {
  if (shape(where).size() != 1) {
    throw Error("Tensor::item", where, to_string(type_) + " has " + std::to_string(type_.shape.size()) + " elements",
                "use at(i), or read an output of one element");
  }
  return at(0, where);
}

double Tensor::at(std::int64_t i, Where where) const {
  if (i < 0 || i >= shape(where).size()) {
    throw Error("Tensor::at", where, "element " + std::to_string(i) + " of " + to_string(type_),
                "use an index below the number of elements");
  }
  auto k = static_cast<std::size_t>(i);
  double value = 0;
  with_element_type(dtype(), [&]<class T>(T) { value = static_cast<double>(as<T>()[k]); });
  return value;
}

Tensor Tensor::to(DType wanted, Where where) const {
  if (wanted == dtype(where)) return *this;
  Tensor result(wanted, shape());
  with_element_type(dtype(), [&]<class From>(From) {
    with_element_type(wanted, [&]<class To>(To) {
      std::span<const From> from = as<From>();
      std::transform(from.begin(), from.end(), result.as<To>().begin(), convert<To, From>);
    });
  });
  return result;
}

Tensor Tensor::slice(std::int64_t begin, std::int64_t end, Where where) const {
  const Shape& whole = shape(where);
  if (whole.rank() == 0 || begin < 0 || end < begin || end > whole[0]) {
    throw Error(
        "Tensor::slice", where,
        "[" + std::to_string(begin) + ", " + std::to_string(end) + ") of the first dimension of " + to_string(type_),
        "ask for 0 <= begin <= end <= shape()[0]");
  }
  Shape part = whole;
  part[0] = end - begin;
  Tensor result(dtype(), part, where);
  if (whole[0] == 0) return result;
  const std::size_t row = bytes_.size() / static_cast<std::size_t>(whole[0]);
  std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(row) * begin, result.bytes_.size(), result.bytes_.begin());
  return result;
}

Tensor Tensor::concat(std::span<const Tensor> parts, Where where) {
  if (parts.empty()) throw Error("Tensor::concat", where, "there are no parts", "give one or more");
  TensorType type = parts[0].type(where);
  for (const Tensor& part : parts.subspan(1)) {
    TensorType other = part.type(where);
    const std::int64_t rows = other.shape.rank() > 0 ? other.shape[0] : 0;
    if (other.shape.rank() > 0 && type.shape.rank() > 0) other.shape[0] = type.shape[0];
    if (other != type || type.shape.rank() == 0) {
      throw Error("Tensor::concat", where, to_string(part.type()) + " beside " + to_string(parts[0].type()),
                  "give parts of one dtype that differ in the first dimension alone");
    }
    type.shape[0] += rows;
  }
  if (type.shape.rank() == 0)
    throw Error("Tensor::concat", where, "a scalar has no dimension", "give it one: Tensor({x})");
  Tensor whole(type, where);
  auto to = whole.bytes_.begin();
  for (const Tensor& part : parts) to = std::copy(part.bytes_.begin(), part.bytes_.end(), to);
  return whole;
}

void Tensor::check_count(std::size_t count, const Where& where) const {
  if (static_cast<std::int64_t>(count) != shape().size()) {
    throw Error("Tensor", where, std::to_string(count) + " values for " + to_string(type_),
                "give " + std::to_string(shape().size()) + " values or another shape");
  }
}

void Tensor::check_dtype(DType wanted, const Where& where) const {
  if (wanted != dtype(where)) {
    throw Error("Tensor::as", where,
                "elements are " + std::string(to_string(dtype())) + ", not " + std::string(to_string(wanted)),
                "ask for the element type that matches the dtype");
  }
}

namespace {

// Integers with all of their digits, which a double has not for all of them.
template <class T>
void print(T element, std::ostream& out) {
  if constexpr (std::is_integral_v<T>) {
    out << std::to_string(element);
  } else {
    out << static_cast<double>(element);
  }
}

// A decimal comma could not be told from those between elements, nor could a point between thousands.
class WithoutLocale {
 public:
  explicit WithoutLocale(std::ostream& out) : out_(out), before_(out.imbue(std::locale::classic())) {}
  ~WithoutLocale() { out_.imbue(before_); }
  WithoutLocale(const WithoutLocale&) = delete;
  WithoutLocale& operator=(const WithoutLocale&) = delete;

 private:
  std::ostream& out_;
  std::locale before_;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.valid()) return out << "(no tensor)";
  const WithoutLocale numbers(out);
  out << to_string(tensor.type()) << " [";
  const std::int64_t size = tensor.shape().size();
  with_element_type(tensor.dtype(), [&]<class T>(T) {
    for (std::int64_t i = 0; i < size && i < 16; ++i) {
      out << (i ? ", " : "");
      print(tensor.as<T>()[static_cast<std::size_t>(i)], out);
    }
  });
  return out << (size > 16 ? ", ...]" : "]");
}

}  // namespace graphsink
