// The functions of CPU bodies: their errors in units of the last place, special operands, and that a result depends
// neither on the place of an element in a row, nor on what else is in the row, nor on how an exponent is given.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "graphsink/graphsink.h"
#include "kernels/support/host_math.h"
#include "kernels/support/host_pow.h"
#include "kernels/support/host_trigonometry.h"

namespace graphsink::host_math_test {
namespace {

template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <class T>
std::vector<T> special_numbers() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> result{T(0), T(1), T(0.5), T(2), T(3), T(7), T(2.5), T(88.7), T(104), T(709.8), T(745.2)};
  for (T x : {Limits::infinity(), Limits::denorm_min(), Limits::min(), Limits::max(), T(1e5), T(100001), T(1e30)})
    result.push_back(x);
  for (int k = 1; k < 9; ++k) result.push_back(static_cast<T>(k * M_PI_4));
  for (std::size_t i = 0, n = result.size(); i < n; ++i) result.push_back(-result[i]);
  result.push_back(Limits::quiet_NaN());
  return result;
}

// Special numbers, numbers of [low, high) and of all magnitudes.
template <class T>
std::vector<T> operands(double low, double high, std::size_t count) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> numbers(low, high);
  std::vector<T> result = special_numbers<T>();
  while (result.size() < count) {
    result.push_back(static_cast<T>(numbers(random)));
    result.push_back(std::bit_cast<T>(static_cast<Bits<T>>(random())));
  }
  return result;
}

// The error in units of the last place. A result that is not a number, infinite or 0 must be just that.
template <class T>
long double error_of(T seen, long double exact) {
  constexpr long double kWrong = std::numeric_limits<long double>::infinity();
  auto rounded = static_cast<T>(exact);
  if (std::isnan(exact)) return std::isnan(seen) ? 0 : kWrong;
  if (std::isinf(rounded) || exact == 0)
    return seen == rounded && std::signbit(seen) == std::signbit(rounded) ? 0 : kWrong;
  if (!std::isfinite(seen)) return kWrong;
  int exponent = 0;
  std::frexp(rounded, &exponent);
  exponent = std::max(exponent, std::numeric_limits<T>::min_exponent) - std::numeric_limits<T>::digits;
  return std::abs(static_cast<long double>(seen) - exact) / std::ldexp(1.0L, exponent);
}

template <class T, class F, class Exact>
void expect_errors_below(long double limit, double low, double high, F f, Exact exact) {
  for (T x : operands<T>(low, high, 100000)) ASSERT_LT(error_of(f(x), exact(static_cast<long double>(x))), limit) << x;
}

TEST(HostMath, ErrsByLessThanTwoUnits) {
  static_assert(std::numeric_limits<long double>::digits >= 64);
  using Exact = long double (*)(long double);
  auto check = [](float (*f)(float), Exact exact, double limit, double low, double high) {
    expect_errors_below<float>(limit, low, high, f, exact);
  };
  namespace m = host_math;
  check(m::exp, std::exp, 0.92, -104, 89);
  check(m::log, std::log, 0.83, 0, 3);
  check(m::tanh, std::tanh, 1.4, -10, 10);
  check(m::erf, std::erf, 1.2, -4, 4);
  check(m::sin, std::sin, 1.6, -10, 10);
  check(m::cos, std::cos, 1.6, -10, 10);
  check(m::sin, std::sin, 1.6, -1.1e5, 1.1e5);
  check(m::cos, std::cos, 1.6, -1.1e5, 1.1e5);
}

TEST(HostMath, OfDoublesErrsByLessThanAUnit) {
  using Exact = long double (*)(long double);
  // Of more than 2^63, the x87 functions do not reduce sines.
  auto check = [](double (*f)(double), Exact exact, double low, double high, double end) {
    for (double x : operands<double>(low, high, 100000))
      if (!(std::abs(x) > end)) {
        ASSERT_LT(error_of(f(x), exact(x)), 1) << x;
      }
  };
  constexpr double kAll = std::numeric_limits<double>::infinity();
  namespace m = host_math;
  check(m::exp, std::exp, -745, 710, kAll);
  check(m::exp, std::exp, -1, 1, kAll);
  check(m::log, std::log, 0, 3, kAll);
  check(m::tanh, std::tanh, -22, 22, kAll);
  check(m::sin, std::sin, -10, 10, 0x1p62);
  check(m::cos, std::cos, -10, 10, 0x1p62);
  check(m::sin, std::sin, -1.1e5, 1.1e5, 0x1p62);
  check(m::cos, std::cos, -1.1e5, 1.1e5, 0x1p62);
}

// The doubles nearest to multiples of pi / 2, whose remainders begin with digits of pi that no double has. The sines
// are those of 128-bit arithmetic.
TEST(HostMath, OfDoublesKnowsPiToManyDigits) {
  struct Known {
    double x, sine;
  };
  for (auto [x, sine] :
       {Known{0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53}, Known{0x1.78fdb9effea47p+5, -0x1.ee8786039d373p-50},
        Known{0x1.6c6cbc45dc8dep+6, -0x1.6d61b58c99c43p-60}, Known{0x1.9eb0b2ee64e81p+6, 0x1.19abb2567f739p-51},
        Known{0x1.6c6cbc45dc8dep+7, 0x1.6d61b58c99c43p-59}, Known{0x1.1475cc9eedf01p+5, -0x1.3ddc5bce200bbp-49},
        Known{0x1.16d0fc2ed4544p+10, 0x1.53cb37c6a9dcfp-44}, Known{0x1.16d0fc2ed4544p+11, -0x1.53cb37c6a9dcfp-43},
        Known{0x1.7f787cbbb8381p+15, 0x1.cd6dda5146b7cp-40}, Known{0x1.7027c7945eac9p+16, -0x1.9a1f4e40f0f03p-40}})
    EXPECT_EQ(host_math::sin(x), sine) << x;
}

TEST(HostMath, OfPowersErrsByLessThanTwoUnits) {
  std::vector<float> bases = special_numbers<float>(), exponents = bases;
  for (float x : {8388609.0f, 16777215.0f, -13.0f, 1e-30f, 0.1f}) exponents.push_back(x);
  for (float a : bases)
    for (float b : exponents)
      ASSERT_LT(error_of(host_math::pow(a, b), std::pow(static_cast<long double>(a), b)), 2) << a << "^" << b;
  std::vector<float> a = operands<float>(0, 3, 100000), b = operands<float>(-40, 40, 100000);
  std::shuffle(b.begin(), b.end(), std::mt19937(2));
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_LT(error_of(host_math::pow(a[i], b[i]), std::pow(static_cast<long double>(a[i]), b[i])), 2)
        << a[i] << "^" << b[i];
}

// Of f(x) for 10000 numbers x of [low, high).
template <class T, class F>
std::uint64_t hash_of(T low, T high, F f) {
  constexpr int kCount = 10000;
  std::uint64_t hash = 0xcbf29ce484222325;
  for (int i = 0; i < kCount; ++i) {
    T x = low + (high - low) * static_cast<T>(i) / static_cast<T>(kCount);
    hash = (hash ^ std::bit_cast<Bits<T>>(f(x))) * 0x100000001b3;
  }
  return hash;
}

// On every machine, with an instruction for fused multiply-adds or without, and with every compiler.
TEST(HostMath, HasTheseBits) {
  namespace m = host_math;
  auto of_float = [](float (*f)(float), float low, float high) { return hash_of<float>(low, high, f); };
  auto of_double = [](double (*f)(double), double low, double high) { return hash_of<double>(low, high, f); };
  EXPECT_EQ(of_float(m::exp, -104, 89), 0x6f895bf216793512);
  EXPECT_EQ(of_float(m::log, 0, 3), 0x8b7a04ac8aa2d88d);
  EXPECT_EQ(of_float(m::tanh, -5, 5), 0xf54ee711e8f5dd07);
  EXPECT_EQ(of_float(m::erf, -4, 4), 0x3c4e9d0bdbff0cfb);
  EXPECT_EQ(of_float(m::sin, -1000, 1000), 0x0c1710ccede9c498);
  EXPECT_EQ(of_float(m::cos, -1000, 1000), 0x2821674f3d5403f0);
  EXPECT_EQ(of_double(m::exp, -746, 710), 0x287fc7201b4cc188);
  EXPECT_EQ(of_double(m::log, 0, 3), 0x774cbb7525c13ee2);
  EXPECT_EQ(of_double(m::tanh, -5, 5), 0xe9a762ab0ea5ac58);
  EXPECT_EQ(of_double(m::sin, -1000, 1000), 0xaa17b3304f4fe46d);
  EXPECT_EQ(of_double(m::cos, -1000, 1000), 0xde89d879e4cf27dd);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

Tensor run(const Graph& g, bool flush) {
  CompileOptions options;
  options.flush_denormals = flush;
  Program p = compile(g, options);
  p.run(interactive);
  return p.output("y");
}

// Each element of a row, and the same elements alone.
TEST(HostMath, DependsOnTheElementAlone) {
  using Op = Value (*)(Arg, Placement);
  for (Op op : {Op(exp), Op(log), Op(sin), Op(cos), Op(tanh), Op(erf), Op(sigmoid), Op(gelu), Op(silu), Op(sqrt),
                Op(rsqrt), Op(relu), Op(neg), Op(abs), Op(sign), Op(floor), Op(round)})
    for (DType dtype : {f32, f64, f16, bf16})
      for (bool flush : {true, false}) {
        std::vector<double> numbers = operands<double>(-3, 3, 0);
        for (double x : {0x1p-24, -0x1p-24, 0x1p-133, 0x1p-140, -0x1p-149, 0x1p-1070}) numbers.push_back(x);
        Tensor x = Tensor(Shape{static_cast<std::int64_t>(numbers.size())}, numbers).to(dtype);
        Graph row, single;
        row.output("y", op(row.constant(x), {}));
        Value all = single.constant(x);
        std::vector<Arg> results;
        for (std::int64_t i = 0; i < x.shape().size(); ++i) results.push_back(op(slice(all, {i}, {i + 1}), {}));
        single.output("y", concat(results, 0));
        EXPECT_TRUE(same_bits(run(row, flush), run(single, flush)))
            << to_string(dtype) << " " << flush << " " << run(row, flush) << run(single, flush);
      }
}

TEST(HostMath, OfPowersDoesNotDependOnHowTheExponentIsGiven) {
  for (DType dtype : {f32, f64, f16, bf16})
    for (double exponent : {2.0, 3.0, 0.5, -1.0, 1.0, 0.0, -2.0, 2.5, -0.5, 7.0}) {
      Tensor x(f64, {1000});
      std::vector<double> numbers = operands<double>(-3, 3, 1000);
      std::copy_n(numbers.begin(), 1000, x.as<double>().begin());
      Graph one, many;
      Value a = one.constant(x.to(dtype));
      one.output("y", pow(a, exponent));
      Value b = many.constant(x.to(dtype));
      many.output("y", pow(b, many.constant(Tensor::full(dtype, {1000}, exponent))));
      EXPECT_TRUE(same_bits(run(one, true), run(many, true))) << to_string(dtype) << " to the " << exponent;
    }
}

}  // namespace
}  // namespace graphsink::host_math_test
