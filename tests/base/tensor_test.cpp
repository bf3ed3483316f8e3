// The text of a Tensor, and its parts.
#include "graphsink/tensor.h"

#include <gtest/gtest.h>

#include <limits>
#include <locale>
#include <sstream>

namespace graphsink::tensor_test {
namespace {

template <class T>
std::string printed(std::vector<T> elements) {
  const auto size = static_cast<std::int64_t>(elements.size());
  std::ostringstream out;
  out << Tensor(Shape{size}, std::move(elements));
  return out.str();
}

TEST(TensorText, IntegersHaveAllOfTheirDigits) {
  using Limits = std::numeric_limits<std::int64_t>;
  EXPECT_EQ(printed<std::int64_t>({Limits::min(), 9007199254740993, Limits::max()}),
            "i64[3] [-9223372036854775808, 9007199254740993, 9223372036854775807]");
  EXPECT_EQ(printed<std::int32_t>({1234567, -1}), "i32[2] [1234567, -1]");
  EXPECT_EQ(printed<std::uint8_t>({0, 65, 255}), "u8[3] [0, 65, 255]");
}

// As in some languages.
struct DecimalComma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(TensorText, NumbersAreTheSameInEveryLocale) {
  std::ostringstream out;
  out.imbue(std::locale(std::locale::classic(), new DecimalComma));
  out.precision(3);
  out << Tensor({1.5f, 12345.0f}) << Tensor({1234567}) << " " << 1.5;
  EXPECT_EQ(out.str(), "f32[2] [1.5, 1.23e+04]i32[1] [1234567] 1,5") << "the stream keeps its locale";
}

TEST(TensorText, OtherNumbersFollowTheStream) {
  EXPECT_EQ(printed<float>({1.5f, 1234567.0f}), "f32[2] [1.5, 1.23457e+06]");
  std::ostringstream out;
  out << Tensor({true, false}) << " " << Tensor() << " " << Tensor(f32, {20});
  EXPECT_EQ(out.str(), "bool[2] [1, 0] (no tensor) f32[20] [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ...]");
}

TEST(TensorParts, AreCopiedAndJoinedAlongTheFirstDimension) {
  const Tensor whole(Shape{3, 2}, std::vector<std::int32_t>{1, 2, 3, 4, 5, 6});
  const auto text = [](const Tensor& tensor) {
    std::ostringstream out;
    out << tensor;
    return out.str();
  };
  EXPECT_EQ(text(whole.slice(1, 3)), "i32[2, 2] [3, 4, 5, 6]");
  EXPECT_EQ(text(whole.slice(2, 2)), "i32[0, 2] []");
  EXPECT_EQ(text(Tensor::concat({whole.slice(2, 3), whole.slice(0, 0), whole.slice(0, 2)})),
            "i32[3, 2] [5, 6, 1, 2, 3, 4]");
  EXPECT_EQ(text(Tensor(f32, {2, 0}).slice(0, 1)), "f32[1, 0] []");
  EXPECT_EQ(text(Tensor(f32, {0, 2}).slice(0, 0)), "f32[0, 2] []");
}

TEST(TensorParts, AreRefusedWithTheReason) {
  const Tensor x(f32, {3, 2}), scalar = Tensor::scalar(1.0f);
  const auto problem = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.problem();
    }
    return "";
  };
  EXPECT_EQ(problem([&] { x.slice(-1, 2); }), "[-1, 2) of the first dimension of f32[3, 2]");
  EXPECT_EQ(problem([&] { x.slice(2, 1); }), "[2, 1) of the first dimension of f32[3, 2]");
  EXPECT_EQ(problem([&] { x.slice(0, 4); }), "[0, 4) of the first dimension of f32[3, 2]");
  EXPECT_EQ(problem([&] { scalar.slice(0, 0); }), "[0, 0) of the first dimension of f32[]");
  EXPECT_EQ(problem([&] { Tensor::concat({}); }), "there are no parts");
  EXPECT_EQ(problem([&] { Tensor::concat({scalar}); }), "a scalar has no dimension");
  EXPECT_EQ(problem([&] { Tensor::concat({scalar, x}); }), "f32[3, 2] beside f32[]");
  EXPECT_EQ(problem([&] { Tensor::concat({x, Tensor(f32, {3, 3})}); }), "f32[3, 3] beside f32[3, 2]");
  EXPECT_EQ(problem([&] { Tensor::concat({x, Tensor(f64, {3, 2})}); }), "f64[3, 2] beside f32[3, 2]");
  EXPECT_EQ(problem([&] { Tensor().slice(0, 0); }), "a default-constructed or moved-from Tensor, which has no data");
}

}  // namespace
}  // namespace graphsink::tensor_test
