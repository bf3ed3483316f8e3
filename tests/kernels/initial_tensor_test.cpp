// The samples that weights begin with: their bounds, their distribution, and their bits, which are the same everywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "test_ops.h"

namespace graphsink::initial_tensor_test {
namespace {

// The largest magnitude of many uniform samples is the bound of their range, up to one part in a thousand.
void expect_bound(const Tensor& tensor, double bound) {
  double largest = 0;
  for (float x : tensor.as<float>()) largest = std::max(largest, std::abs(double{x}));
  EXPECT_LE(largest, bound * (1 + 1e-6));
  EXPECT_GE(largest, bound * 0.999);
}

TEST(InitialTensor, KaimingCountsTheProductsOfAnOutput) {
  expect_bound(Tensor::kaiming({64, 96}, 1), std::sqrt(6.0 / 64));
  expect_bound(Tensor::kaiming({64, 96}, 1, OutputAxis::first), std::sqrt(6.0 / 96));
  expect_bound(Tensor::kaiming({64, 32, 3, 5}, 1), std::sqrt(6.0 / (32 * 3 * 5)));
  expect_bound(Tensor::kaiming({3, 5, 32, 64}, 1, OutputAxis::last), std::sqrt(6.0 / (3 * 5 * 32)));
  expect_bound(Tensor::kaiming({64, 32, 9}, 1), std::sqrt(6.0 / (32 * 9)));
  expect_bound(Tensor::kaiming({5000}, 1), std::sqrt(6.0));
  EXPECT_EQ(Tensor::kaiming({}, 1).shape().size(), 1);
  EXPECT_EQ(Tensor::kaiming({3, 0}, 1).shape().size(), 0);
}

TEST(InitialTensor, XavierCountsThoseOfAGradientToo) {
  expect_bound(Tensor::xavier({64, 96}, 1), std::sqrt(6.0 / (64 + 96)));
  expect_bound(Tensor::xavier({64, 32, 3, 5}, 1), std::sqrt(6.0 / (32 * 15 + 64 * 15)));
  expect_bound(Tensor::xavier({3, 5, 32, 64}, 1, OutputAxis::last), std::sqrt(6.0 / (15 * 32 + 15 * 64)));
  EXPECT_EQ(Tensor::xavier({0, 3}, 1).shape().size(), 0);
}

// The largest distance of the samples' distribution from that of the normal one, which for n samples is above
// 1.63 / sqrt(n) in one of a hundred cases (Kolmogorov and Smirnov).
TEST(InitialTensor, NormalSamplesAreNormal) {
  constexpr std::int64_t kSamples = 100001;  // odd: the last sample has no partner
  Tensor tensor = Tensor::normal({kSamples}, 7, 2, 3);
  std::vector<double> sorted;
  for (float x : tensor.as<float>()) sorted.push_back((double{x} - 2) / 3);
  std::ranges::sort(sorted);
  double distance = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const double below = std::erfc(-sorted[i] / std::sqrt(2.0)) / 2;
    distance = std::max({distance, std::abs(below - static_cast<double>(i) / kSamples),
                         std::abs(below - static_cast<double>(i + 1) / kSamples)});
  }
  EXPECT_LT(distance, 1.63 / std::sqrt(static_cast<double>(kSamples)));
  EXPECT_LT(sorted.front(), -3.7);  // the tails are there
  EXPECT_GT(sorted.back(), 3.7);
}

TEST(InitialTensor, TheSameSeedGivesTheSameBits) {
  auto bits = [](const Tensor& tensor, std::size_t i) { return std::bit_cast<std::uint32_t>(tensor.as<float>()[i]); };
  const Tensor uniform = Tensor::uniform({2}, 1), kaiming = Tensor::kaiming({3, 2}, 1), normal = Tensor::normal({4}, 1);
  EXPECT_EQ(bits(uniform, 0), 0x3f110a2du);
  EXPECT_EQ(bits(kaiming, 5), 0x3f3e5b16u);
  EXPECT_EQ(bits(normal, 0), 0x3edbe122u);
  EXPECT_EQ(bits(normal, 3), 0xbd5cddabu);
}

}  // namespace
}  // namespace graphsink::initial_tensor_test
