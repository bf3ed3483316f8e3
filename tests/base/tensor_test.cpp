// What a Tensor prints.
#include "graphsink/tensor.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

namespace graphsink {
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

TEST(TensorText, OtherNumbersFollowTheStream) {
  EXPECT_EQ(printed<float>({1.5f, 1234567.0f}), "f32[2] [1.5, 1.23457e+06]");
  std::ostringstream out;
  out << Tensor({true, false}) << " " << Tensor() << " " << Tensor(f32, {20});
  EXPECT_EQ(out.str(), "bool[2] [1, 0] (no tensor) f32[20] [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ...]");
}

}  // namespace
}  // namespace graphsink
