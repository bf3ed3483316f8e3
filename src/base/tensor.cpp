#include "graphsink/tensor.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <ostream>

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

}  // namespace

Tensor::Tensor(const TensorType& type, Where where) : type_(type) {
  std::size_t bytes = type.bytes(where);
  try {
    bytes_.resize(bytes);
  } catch (const std::bad_alloc&) {
    throw Error("Tensor", where, "there is not enough memory for " + to_string(type), "use smaller sizes");
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

Tensor Tensor::kaiming(const Shape& shape, std::uint64_t seed, Where where) {
  if (shape.size(where) == 0) return Tensor(DType::f32, shape, where);
  std::int64_t fan_in = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) fan_in *= shape[i];
  float bound = std::sqrt(6.0f / static_cast<float>(fan_in > 0 ? fan_in : 1));
  return uniform(shape, seed, -bound, bound, where);
}

Tensor Tensor::uniform(const Shape& shape, std::uint64_t seed, float low, float high, Where where) {
  Tensor tensor(DType::f32, shape, where);
  SplitMix random(seed);
  for (float& x : tensor.as<float>()) x = low + (high - low) * random.uniform();
  return tensor;
}

void Tensor::require_valid(const std::string& op, const Where& where) const {
  if (valid()) return;
  throw Error(op, where, "a default-constructed or moved-from Tensor, which has no data",
              "make it from a type or from values");
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

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.valid()) return out << "(no tensor)";
  out << to_string(tensor.type()) << " [";
  std::int64_t size = tensor.shape().size();
  for (std::int64_t i = 0; i < size && i < 16; ++i) out << (i ? ", " : "") << tensor.at(i);
  return out << (size > 16 ? ", ...]" : "]");
}

}  // namespace graphsink
