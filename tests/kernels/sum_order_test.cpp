// The order in which the CPU adds the terms of a long row: a part of its promise that bits do not depend on the
// processor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "graphsink/graphsink.h"
#ifndef GRAPHSINK_CUDA  // with it, headers of kernels need a compiler of CUDA
#include "kernels/reduce/float_pairs.h"
#endif

namespace graphsink::sum_order_test {
namespace {

// Numbers of different sizes, each of them once more with the other sign. What is left of their sum is what was
// rounded, so that another order gives another sum, even in f64.
Tensor terms(std::int64_t count, DType dtype) {
  std::mt19937 random(static_cast<unsigned>(count));
  const unsigned powers = dtype == f16 ? 30 : 90;  // of two; f16 has no more
  std::vector<float> values;
  while (static_cast<std::int64_t>(values.size()) < count) {
    const double size = 1 + static_cast<double>(random() % 1024) / 1024;
    values.push_back(
        static_cast<float>(std::ldexp(size, static_cast<int>(random() % powers) - static_cast<int>(powers / 2))));
    values.push_back(-values.back());
  }
  std::shuffle(values.begin(), values.end(), random);
  values.resize(static_cast<std::size_t>(count));
  return Tensor(Shape{count}, values).to(dtype);
}

// Pairs of terms of the two halves are added first, those of f32 in f64 and those of f16 and bf16 in f32. Pair k
// belongs to sum k % 32. Half of the sums are added to the other half, until one is left. The last term of an odd
// number comes last.
double sum_in_order(const Tensor& x) {
  const std::int64_t pairs = x.shape()[0] / 2;
  double sums[32] = {};
  for (std::int64_t k = 0; k < pairs; ++k) {
    const double a = x.at(k), b = x.at(k + pairs);
    sums[k % 32] += x.dtype() == f32 ? a + b : static_cast<double>(static_cast<float>(a) + static_cast<float>(b));
  }
  for (int half = 16; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
  return x.shape()[0] % 2 == 0 ? sums[0] : sums[0] + x.at(2 * pairs);
}

TEST(SumOrder, OfALongRowIsAlwaysTheSame) {
  for (DType dtype : {f32, f16, bf16}) {
    for (std::int64_t count : {32, 63, 64, 65, 128, 130, 1031, 9000}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(count));
      const Tensor x = terms(count, dtype);
      Graph g;
      g.output("sum", sum(g.constant(x)));
      Program p = compile(g, {.target = cpu()});
      p.run();
      const Tensor wanted = Tensor::full(f64, {}, sum_in_order(x)).to(dtype), seen = p.output("sum");
      EXPECT_EQ(std::memcmp(seen.data(), wanted.data(), wanted.bytes()), 0) << seen.at(0) << " " << wanted.at(0);
    }
  }
}

#ifdef GRAPHSINK_VECTOR_LEVELS
// A processor uses one of these for f32, and may never use the other.
TEST(SumOrder, IsTheSameWithVectorsOfEachLength) {
  for (std::int64_t count : {0, 2, 62, 64, 66, 1024, 2050}) {
    const Tensor x = terms(count, f32);
    const auto* first = reinterpret_cast<const float*>(x.data());
    const double wanted = sum_in_order(x);
    if (vector_level() >= VectorLevel::avx2) {
      EXPECT_EQ(sum_pairs_avx2(count / 2, first, first + count / 2), wanted) << count;
    }
    if (vector_level() >= VectorLevel::avx512) {
      EXPECT_EQ(sum_pairs_avx512(count / 2, first, first + count / 2), wanted) << count;
    }
  }
}
#endif

}  // namespace
}  // namespace graphsink::sum_order_test
