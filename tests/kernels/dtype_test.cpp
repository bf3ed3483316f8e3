// The element types: how they round, and what cast() does at the ends of their ranges, on every device.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "test_ops.h"

namespace graphsink::dtype_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
constexpr T from_bits(std::uint16_t bits) {
  T x{};
  x.bits = bits;
  return x;
}

TEST(DType, HasANameAndASize) {
  EXPECT_EQ(to_string(TensorType{f16, {2, 3}}), "f16[2, 3]");
  EXPECT_EQ(TensorType({bf16, {3}}).bytes(), 6u);
  EXPECT_EQ(TensorType({i64, {3}}).bytes(), 24u);
  EXPECT_EQ(TensorType({u8, {3}}).bytes(), 3u);
  EXPECT_TRUE(is_float(f16) && is_float(bf16) && !is_float(i64) && !is_float(u8));
  EXPECT_EQ(Tensor({half(1.5), half(-2)}).at(0), 1.5);
  EXPECT_EQ(Tensor::full(i64, {2}, -3).as<std::int64_t>()[1], -3);
}

TEST(DType, TensorsAreMadeOfWhatHoldsElements) {
  Tensor all({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6});
  const Tensor part({2, 2}, all.as<float>().subspan(2)), fixed({2}, all.as<float>().first<2>());
  EXPECT_EQ(part.at(3), 6);
  EXPECT_EQ(fixed.at(1), 2);
  const Tensor flags({2, 2}, std::vector<bool>{true, false, false, true});
  EXPECT_EQ(flags.dtype(), boolean);
  EXPECT_EQ(flags.at(0) + 2 * flags.at(1) + 4 * flags.at(2) + 8 * flags.at(3), 9);
  EXPECT_THROW(Tensor({3}, std::vector<bool>{true}), Error);
  EXPECT_THROW(Tensor({3}, all.as<float>()), Error);

  Graph g;
  Value x = g.input("x", boolean, {3});
  g.output("y", logical_not(x));
  Program p = compile(g, {.target = cpu()});
  p.write(x, std::vector<bool>{true, false, true});
  p.run(interactive);
  EXPECT_EQ(p.output("y").at(1), 1);
  EXPECT_EQ(p.output("y").at(2), 0);
  EXPECT_THROW(p.write(x, std::vector<bool>{true}), Error);
}

TEST(DType, HalfRoundsToNearestEven) {
  static_assert(half(1).bits == 0x3c00 && half(-2.0f).bits == 0xc000);
  EXPECT_EQ(half(65504.0f).bits, 0x7bff);
  EXPECT_EQ(half(65519.99).bits, 0x7bff);
  EXPECT_EQ(half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(half(-kInf).bits, 0xfc00);
  EXPECT_EQ(half(kNan).bits, 0x7fff);
  EXPECT_EQ(half(-0.0f).bits, 0x8000);
  EXPECT_EQ(half(0x1p-24).bits, 1);
  EXPECT_EQ(half(0x1p-25).bits, 0);    // a tie
  EXPECT_EQ(half(0x1.8p-24).bits, 2);  // another
  EXPECT_EQ(half(1 + 0x1p-11).bits, 0x3c00);
  EXPECT_EQ(half(1 + 0x3p-11).bits, 0x3c02);
  EXPECT_EQ(half(1 + 0x1p-11 + 0x1p-40).bits, 0x3c01);  // in two roundings a tie
}

TEST(DType, BfloatRoundsToNearestEven) {
  static_assert(bfloat16(1).bits == 0x3f80);
  EXPECT_EQ(bfloat16(kNan).bits, 0x7fff);
  EXPECT_EQ(bfloat16(kInf).bits, 0x7f80);
  EXPECT_EQ(bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(bfloat16(1 + 0x1p-8).bits, 0x3f80);
  EXPECT_EQ(bfloat16(1 + 0x3p-8).bits, 0x3f82);
  EXPECT_EQ(bfloat16(1 + 0x1p-8 + 0x1p-40).bits, 0x3f81);
  std::int64_t tie = (std::int64_t{1} << 62) + (std::int64_t{1} << 54);
  EXPECT_EQ(bfloat16(tie).bits, bfloat16(0x1p62).bits);
  EXPECT_EQ(bfloat16(tie + 1).bits, bfloat16(0x1p62).bits + 1);
  EXPECT_EQ(bfloat16(-tie - 1).bits, bfloat16(-0x1p62).bits + 1);
}

// Every value survives, and half way to the next goes to the even one.
template <class T>
void check_all_values(std::uint16_t largest) {
  for (std::uint16_t bits = 0; bits < largest; ++bits) {
    auto next = static_cast<std::uint16_t>(bits + 1);
    float x = from_bits<T>(bits);
    double middle = (double{x} + double{from_bits<T>(next)}) / 2;
    ASSERT_LT(x, float{from_bits<T>(next)});
    ASSERT_EQ(T(x).bits, bits);
    ASSERT_EQ(T(-x).bits, bits | 0x8000);
    ASSERT_EQ(T(middle).bits, bits % 2 == 0 ? bits : next) << bits;
    ASSERT_EQ(T(std::nextafter(middle, 0.0)).bits, bits) << bits;
    ASSERT_EQ(T(std::nextafter(middle, kInf)).bits, next) << bits;
  }
}
TEST(DType, AllHalvesAndBfloatsSurvive) {
  check_all_values<half>(0x7bff);
  check_all_values<bfloat16>(0x7f7f);
}

class Casts : public ::testing::TestWithParam<DeviceId> {
 protected:
  Tensor run(const Tensor& x, DType to) {
    Graph g;
    g.output("y", cast(g.constant(x), to));
    Program program = graphsink::compile(g, {.target = GetParam()});
    program.run(interactive);
    return program.output("y");
  }
};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, Casts, ::testing::ValuesIn(testing::devices()), device_name);

template <class T>
std::vector<T> elements(const Tensor& tensor) {
  auto span = tensor.as<T>();
  return {span.begin(), span.end()};
}

TEST_P(Casts, FloatsStopAtTheEndsOfIntegers) {
  using Int = std::numeric_limits<std::int32_t>;
  using Long = std::numeric_limits<std::int64_t>;
  Tensor x({kNan, kInf, -kInf, 1e30, -1e30, 300.9, -3.9, 255.9, -0.9, 2147483647.9, -2147483648.9});
  for (DType from : {f64, f32}) {
    Tensor y = run(x, from);
    bool is_f64 = from == f64;
    EXPECT_EQ(elements<std::int32_t>(run(y, i32)),
              (std::vector<std::int32_t>{0, Int::max(), Int::min(), Int::max(), Int::min(), 300, -3, 255, 0, Int::max(),
                                         Int::min()}));
    EXPECT_EQ(elements<std::int64_t>(run(y, i64)),
              (std::vector<std::int64_t>{0, Long::max(), Long::min(), Long::max(), Long::min(), 300, -3, 255, 0,
                                         is_f64 ? 2147483647 : 2147483648, -2147483648}));
    EXPECT_EQ(elements<std::uint8_t>(run(y, u8)),
              (std::vector<std::uint8_t>{0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0}));
    EXPECT_EQ(elements<bool>(run(y, boolean)), std::vector<bool>(11, true));
  }
  EXPECT_EQ(elements<std::int32_t>(run(Tensor({half(kInf), half(kNan), half(-7.5)}), i32)),
            (std::vector<std::int32_t>{Int::max(), 0, -7}));
}

TEST_P(Casts, IntegersKeepTheLowBits) {
  Tensor x({std::int64_t{-1}, std::int64_t{300}, (std::int64_t{5} << 32) + 7});
  EXPECT_EQ(elements<std::int32_t>(run(x, i32)), (std::vector<std::int32_t>{-1, 300, 7}));
  EXPECT_EQ(elements<std::uint8_t>(run(x, u8)), (std::vector<std::uint8_t>{255, 44, 7}));
}

TEST_P(Casts, ToHalvesRoundOnce) {
  double x = 1 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(run(Tensor({x}), f16).as<half>()[0].bits, 0x3c01);
  EXPECT_EQ(run(Tensor({kNan}), bf16).as<bfloat16>()[0].bits, 0x7fff);
  EXPECT_EQ(run(Tensor({1e-7, 7e4}), f16).as<half>()[0].bits, 2);
  EXPECT_TRUE(std::isinf(run(Tensor({1e-7, 7e4}), f16).at(1)));
}

// Processors convert many elements with an instruction of their own: those of every half, and of numbers just below,
// at and just above the middle of two.
TEST_P(Casts, RowsOfHalvesHaveTheBitsOfSingleOnes) {
  Tensor halves(f16, {0x10000}), floats(f32, {3 * 0xffff});
  for (int i = 0; i < 0x10000; ++i) halves.as<half>()[i] = from_bits<half>(static_cast<std::uint16_t>(i));
  for (int i = 0; i + 1 < 0x10000; ++i) {
    float middle = (float{halves.as<half>()[i]} + float{halves.as<half>()[i + 1]}) / 2;
    const float numbers[] = {std::nextafter(middle, -INFINITY), middle, std::nextafter(middle, INFINITY)};
    std::copy_n(numbers, 3, &floats.as<float>()[3 * i]);
  }
  Tensor wide = run(halves, f32), narrow = run(floats, f16);
  for (int i = 0; i < 0x10000; ++i) {
    float expected = halves.as<half>()[i];
    bool is_nan = expected != expected, stays_nan = wide.at(i) != wide.at(i);
    ASSERT_TRUE(is_nan ? stays_nan : wide.as<float>()[i] == expected) << i;
  }
  for (int i = 0; i < 3 * 0xffff; ++i)
    ASSERT_EQ(narrow.as<half>()[i].bits, half(floats.as<float>()[i]).bits) << floats.at(i);
}

// 4096 ones: added up in f16 they would stop at 2048.
TEST_P(Casts, HalvesAreSummedInFloats) {
  Graph g;
  g.output("sum", sum(g.constant(Tensor::full(f16, {4096}, 1))));
  g.output("mean", mean(g.constant(Tensor::full(bf16, {40000}, 3))));
  g.record("loss", cast(sum(g.constant(Tensor::full(f32, {3}, 1))), f16));
  Program program = graphsink::compile(g, {.target = GetParam(), .check_finite = true});
  program.run(interactive);
  EXPECT_EQ(program.output("sum").at(0), 4096);
  EXPECT_EQ(program.output("mean").at(0), 3);
  EXPECT_EQ(program.records<float>("loss"), std::vector<float>{3});
}

TEST_P(Casts, NumbersOf64Bits) {
  Graph g;
  std::int64_t large = (std::int64_t{1} << 40) + 1;
  Value x = g.constant(Tensor({large, std::int64_t{-3}}));
  g.output("y", x * 3 + x);
  Program program = graphsink::compile(g, {.target = GetParam()});
  program.run(interactive);
  EXPECT_EQ(elements<std::int64_t>(program.output("y")), (std::vector<std::int64_t>{4 * large, -12}));
}

}  // namespace
}  // namespace graphsink::dtype_test
