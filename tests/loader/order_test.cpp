// The order of training samples: permutations, ranks, weights, batches and buckets.
#include "graphsink/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "graphsink/loader.h"
#include "loader/alias_table.h"
#include "loader/draws.h"
#include "loader/permutation.h"
#include "refusal.h"

namespace graphsink::order_test {
namespace {

using Ints = std::vector<std::int64_t>;

using testing::expect_refused;

PhiloxKey key(std::uint64_t seed) { return key_of(seed, 0, Purpose::shuffle); }

Ints all_of(std::int64_t size, const PhiloxKey& key) {
  const Permutation permutation(size, key);
  Ints all;
  for (std::int64_t i = 0; i < size; ++i) all.push_back(permutation[i]);
  return all;
}

// Pearson's sum for counts and the counts that are expected.
double chi_square(const std::vector<double>& seen, const std::vector<double>& expected) {
  double sum = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) sum += (seen[i] - expected[i]) * (seen[i] - expected[i]) / expected[i];
  return sum;
}
// Whether a sum with this many degrees of freedom is likely: within 4 standard deviations of the distribution, which is
// about normal (Wilson and Hilferty 1931). Numbers that are too even are as suspicious as those that are too uneven.
void expect_likely(const std::vector<double>& seen, const std::vector<double>& expected, const std::string& what) {
  const double freedom = static_cast<double>(seen.size() - 1);
  const double root = std::cbrt(chi_square(seen, expected) / freedom), variance = 2 / (9 * freedom);
  EXPECT_LT(std::abs(root - (1 - variance)) / std::sqrt(variance), 4) << what;
}
void expect_even(const std::vector<double>& seen, const std::string& what) {
  const double total = std::accumulate(seen.begin(), seen.end(), 0.0);
  expect_likely(seen, std::vector<double>(seen.size(), total / static_cast<double>(seen.size())), what);
}

TEST(PermutationTest, HasEachNumberOnceForEverySizeUpTo1000) {
  for (std::int64_t size = 1; size <= 1000; ++size) {
    Ints all = all_of(size, key(static_cast<std::uint64_t>(size) * 77));
    std::sort(all.begin(), all.end());
    for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(all[static_cast<std::size_t>(i)], i) << size;
  }
  for (std::int64_t size : {4095, 4096, 4097, 100'000}) {
    Ints all = all_of(size, key(3));
    std::sort(all.begin(), all.end());
    for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(all[static_cast<std::size_t>(i)], i) << size;
  }
}

TEST(PermutationTest, HasNoNumberTwiceInSamplesOfLargeSizes) {
  for (int bits : {20, 31, 32, 33, 40, 53, 61, 62}) {
    for (std::int64_t size :
         {(std::int64_t{1} << bits) - 1, std::int64_t{1} << bits, (std::int64_t{1} << bits) / 3 * 2}) {
      const Permutation permutation(size, key(5));
      std::set<std::int64_t> positions, seen;
      constexpr std::int64_t kSamples = 5000;
      for (std::int64_t i = 0; i < kSamples; ++i) {
        // From the beginning, from the end and in between.
        const std::int64_t position = i % 3 == 0 ? i : i % 3 == 1 ? size - 1 - i : size / kSamples * i;
        if (!positions.insert(position).second) continue;
        const std::int64_t number = permutation[position];
        ASSERT_GE(number, 0);
        ASSERT_LT(number, size);
        ASSERT_TRUE(seen.insert(number).second) << size << " " << position;
      }
    }
  }
}

// Each order of few samples is as frequent as each other one. Networks of few bits fail this.
TEST(PermutationTest, AllOrdersOfFewSamplesAreEquallyFrequent) {
  for (std::int64_t size : {2, 3, 4, 5}) {
    std::map<Ints, double> counts;
    Ints order(static_cast<std::size_t>(size));
    std::iota(order.begin(), order.end(), 0);
    do counts[order] = 0;
    while (std::next_permutation(order.begin(), order.end()));
    const std::uint64_t trials = counts.size() * 100;
    for (std::uint64_t seed = 0; seed < trials; ++seed) counts[all_of(size, key(seed))] += 1;
    std::vector<double> seen;
    for (const auto& [permuted, count] : counts) seen.push_back(count);
    expect_even(seen, "orders of " + std::to_string(size));
  }
}

// How often number j is at position i, and position i + 1 follows position i at which distance.
TEST(PermutationTest, EachNumberIsEquallyFrequentAtEachPosition) {
  for (std::int64_t size : {10, 16, 100, 256, 257}) {
    std::vector<double> at(static_cast<std::size_t>(size * 10)), distance(static_cast<std::size_t>(size - 1));
    for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(size) * 20; ++seed) {
      const Permutation permutation(size, key_of(9, static_cast<std::int64_t>(seed), Purpose::shuffle));
      for (std::int64_t i = 0; i < 10; ++i) at[static_cast<std::size_t>(i * size + permutation[i])] += 1;
      distance[static_cast<std::size_t>((permutation[1] - permutation[0] + size) % size - 1)] += 1;
    }
    expect_even(at, "positions of " + std::to_string(size));
    expect_even(distance, "distances in " + std::to_string(size));
  }
}

TEST(PermutationTest, NumbersOfOneLargePermutationAreEvenlySpread) {
  constexpr std::int64_t kSize = 3'000'000'000'000;
  const Permutation permutation(kSize, key(2));
  std::vector<double> cells(64), pairs(64);
  for (std::int64_t i = 0; i < 20'000; ++i) {
    cells[static_cast<std::size_t>(permutation[i] / (kSize / 64 + 1))] += 1;
    const std::int64_t a = permutation[kSize / 2 + 2 * i], b = permutation[kSize / 2 + 2 * i + 1];
    pairs[static_cast<std::size_t>(a / (kSize / 8 + 1) * 8 + b / (kSize / 8 + 1))] += 1;
  }
  expect_even(cells, "cells");
  expect_even(pairs, "pairs");
}

TEST(DrawsTest, NumbersBelowN) {
  EXPECT_EQ(below(0, 0, 1), 0);
  EXPECT_EQ(below(~0u, ~0u, 1), 0);
  EXPECT_EQ(below(~0u, ~0u, 1000), 999);
  EXPECT_EQ(below(0x80000000, 0, 1000), 500);
  EXPECT_EQ(below(0x7fffffff, ~0u, 1000), 499);
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  EXPECT_EQ(below(~0u, ~0u, kMost), kMost - 1);
  EXPECT_EQ(below(0x80000000, 4, kMost), kMost / 2 + 1);
  EXPECT_EQ(below(0x80000000, 3, kMost), kMost / 2);
  // Where the products carry: floor(0x123456789abcdef0 * 0x3edcba9876543210 / 2^64).
  EXPECT_EQ(below(0x12345678, 0x9abcdef0, 0x3edcba9876543210), 322112034788330734);
}

// All samples of one rank, in their turn.
struct Epoch {
  Ints real, padding;
  std::vector<std::size_t> sizes;
};
Epoch epoch_of(const SampleOrder& order, std::int64_t epoch) {
  Epoch all;
  for (std::int64_t b = 0; b < order.batches(); ++b) {
    const Batch batch = order.batch(epoch, b);
    const auto real = batch.samples.begin() + batch.real;
    all.real.insert(all.real.end(), batch.samples.begin(), real);
    all.padding.insert(all.padding.end(), real, batch.samples.end());
    all.sizes.push_back(batch.samples.size());
  }
  return all;
}

TEST(SampleOrderTest, BatchesInOrder) {
  const SampleOrder order = sample_order(7, {.batch = 3, .is_shuffled = false});
  EXPECT_EQ(order.batches(), 2);
  EXPECT_EQ(order.batch(0, 0).samples, (Ints{0, 1, 2}));
  EXPECT_EQ(order.batch(5, 1).samples, (Ints{3, 4, 5}));
  EXPECT_EQ(order.batch(0, 1).real, 3);
  const SampleOrder padded = sample_order(7, {.batch = 3, .last_batch = LastBatch::pad, .is_shuffled = false});
  EXPECT_EQ(padded.batches(), 3);
  EXPECT_EQ(padded.batch(0, 2).samples, (Ints{6, 0, 1}));
  EXPECT_EQ(padded.batch(0, 2).real, 1);
  const SampleOrder shorter = sample_order(7, {.batch = 3, .last_batch = LastBatch::shorter, .is_shuffled = false});
  EXPECT_EQ(shorter.batches(), 3);
  EXPECT_EQ(shorter.batch(0, 2).samples, (Ints{6}));
  EXPECT_EQ(shorter.batch(0, 2).real, 1);
  // Fewer samples than a batch has.
  const SampleOrder few = sample_order(2, {.batch = 5, .last_batch = LastBatch::pad, .is_shuffled = false});
  EXPECT_EQ(few.batch(0, 0).samples, (Ints{0, 1, 0, 1, 0}));
  EXPECT_EQ(few.batch(0, 0).real, 2);
}

TEST(SampleOrderTest, RanksTakeEveryWorldthSample) {
  const OrderOptions second{.batch = 2, .last_batch = LastBatch::shorter, .is_shuffled = false, .rank = 1, .world = 3};
  const Epoch epoch = epoch_of(sample_order(10, second), 0);
  EXPECT_EQ(epoch.real, (Ints{1, 4, 7}));
  EXPECT_EQ(epoch.padding, (Ints{0}));  // the tenth sample is that of rank 0
  OrderOptions dropped = second;
  dropped.pads_ranks = false;
  EXPECT_EQ(epoch_of(sample_order(10, dropped), 0).real, (Ints{1, 4, 7}));
  EXPECT_TRUE(epoch_of(sample_order(10, dropped), 0).padding.empty());
}

TEST(SampleOrderTest, AllRanksTogetherHaveEachSampleOnce) {
  for (std::int64_t size : {1, 2, 5, 12, 13, 64, 101})
    for (std::int64_t world : {1, 2, 3, 8})
      for (std::int64_t batch : {1, 3, 4})
        for (LastBatch last : {LastBatch::drop, LastBatch::pad, LastBatch::shorter})
          for (bool pads : {true, false})
            for (bool is_shuffled : {true, false}) {
              SCOPED_TRACE(std::to_string(size) + " samples, world " + std::to_string(world) + ", batch " +
                           std::to_string(batch) + ", " + std::to_string(static_cast<int>(last)) +
                           std::to_string(pads));
              const std::int64_t each = pads ? (size + world - 1) / world : size / world;
              const std::int64_t batches = last == LastBatch::drop ? each / batch : (each + batch - 1) / batch;
              if (batches == 0) continue;
              Ints real;
              for (std::int64_t rank = 0; rank < world; ++rank) {
                const SampleOrder order = sample_order(size, {.batch = batch,
                                                              .last_batch = last,
                                                              .is_shuffled = is_shuffled,
                                                              .seed = 4,
                                                              .rank = rank,
                                                              .world = world,
                                                              .pads_ranks = pads});
                ASSERT_EQ(order.batches(), batches);
                const Epoch epoch = epoch_of(order, 3);
                const std::int64_t samples = last == LastBatch::shorter ? each : batches * batch;
                ASSERT_EQ(epoch.real.size() + epoch.padding.size(), static_cast<std::size_t>(samples));
                real.insert(real.end(), epoch.real.begin(), epoch.real.end());
                for (std::int64_t sample : epoch.padding) ASSERT_TRUE(sample >= 0 && sample < size);
              }
              std::sort(real.begin(), real.end());
              ASSERT_EQ(std::adjacent_find(real.begin(), real.end()), real.end()) << "a sample occurs twice";
              ASSERT_TRUE(real.front() >= 0 && real.back() < size);
              std::int64_t expected = pads ? size : each * world;
              if (last == LastBatch::drop) expected = std::min(expected, batches * batch * world);
              ASSERT_EQ(real.size(), static_cast<std::size_t>(expected));
            }
}

TEST(SampleOrderTest, EachEpochAndSeedHasAnotherOrder) {
  auto first = [](std::uint64_t seed, std::int64_t epoch) {
    return sample_order(1'000'000, {.batch = 8, .seed = seed}).batch(epoch, 100).samples;
  };
  EXPECT_EQ(first(1, 0), first(1, 0));
  EXPECT_NE(first(1, 0), first(1, 1));
  EXPECT_NE(first(1, 0), first(2, 0));
  EXPECT_NE(first(1, 0), first(1 + (std::uint64_t{1} << 32), 0));
  EXPECT_NE(first(1, 0), first(1, std::int64_t{1} << 32));
}

// A run resumes from two numbers, on any machine, so these must never change.
TEST(SampleOrderTest, TheSameBitsOnEveryMachine) {
  auto sum = [](const SampleOrder& order) {
    std::string text;
    for (std::int64_t b = 0; b < std::min<std::int64_t>(order.batches(), 20); ++b) {
      const Batch batch = order.batch(7, b);
      for (std::int64_t sample : batch.samples) text += std::to_string(sample) + " ";
      text += std::to_string(batch.real) + " " + std::to_string(batch.bucket) + "\n";
    }
    return checksum(text.data(), text.size());
  };
  std::vector<double> weights;
  Ints lengths;
  for (int i = 0; i < 1000; ++i) {
    weights.push_back(1.0 / (1 + i));
    lengths.push_back(i * i % 101);
  }
  const OrderOptions options{.batch = 16, .last_batch = LastBatch::pad, .seed = 42, .rank = 1, .world = 2};
  EXPECT_EQ(sum(sample_order(12'345'678'901, options)), "8df23ecc");
  EXPECT_EQ(sum(weighted_order(weights, 700, options)), "bdccf08a");
  EXPECT_EQ(sum(length_order(lengths, std::vector<LengthBucket>{{30, 32}, {60}, {100, 8}}, options)), "f1b8d79a");
}

TEST(SampleOrderTest, WrongOptionsAreRefused) {
  expect_refused([] { sample_order(0); }, {"sample_order", "number of samples from 1", "seen 0"});
  expect_refused([] { sample_order((std::int64_t{1} << 62) + 1); }, {"4611686018427387905"});
  expect_refused([] { sample_order(5, {.batch = 0}); }, {"a batch from 1", "seen 0"});
  expect_refused([] { sample_order(5, {.batch = (std::int64_t{1} << 31) + 1}); }, {"a batch from 1"});
  expect_refused([] { sample_order(5, {.world = 0}); }, {"a world from 1", "seen 0"});
  expect_refused([] { sample_order(5, {.rank = 2, .world = 2}); }, {"a rank from 0 to 1, seen 2"});
  expect_refused([] { sample_order(5, {.rank = -1}); }, {"a rank from 0 to 0, seen -1"});
  expect_refused([] { sample_order(5, {.batch = 6}); }, {"no whole batch", "6 samples", "LastBatch::pad"});
  expect_refused([] { sample_order(5, {.last_batch = LastBatch::pad, .world = 6, .pads_ranks = false}); },
                 {"no whole batch", "6 ranks"});
  const SampleOrder order = sample_order(5, {.batch = 2});
  expect_refused([&] { order.batch(0, 2); }, {"from 0 to 2 (exclusive)", "epoch 0 and batch 2"});
  expect_refused([&] { order.batch(0, -1); }, {"batch -1"});
  expect_refused([&] { order.batch(-1, 0); }, {"epoch -1"});
  const std::vector<double> some{1};
  expect_refused([] { weighted_order({}, 5); }, {"weighted_order", "a weight above 0, seen none"});
  expect_refused([] { weighted_order(std::vector<double>{0, 0}, 5); }, {"a weight above 0, seen none"});
  expect_refused([] { weighted_order(std::vector<double>{1, -1}, 5); }, {"weight 1: expected a finite number"});
  expect_refused([] { weighted_order(std::vector<double>{std::nan("")}, 5); }, {"weight 0"});
  expect_refused([] { weighted_order(std::vector<double>{HUGE_VAL}, 5); }, {"weight 0"});
  expect_refused([&] { weighted_order(some, 0); }, {"number of samples", "seen 0"});
  expect_refused([&] { weighted_order(some, 5, {.is_shuffled = false}); }, {"is_shuffled is false"});
  expect_refused([&] { weighted_order(some, 5, {.batch = 0}); }, {"a batch from 1"});
  const Ints lengths{3, 9};
  using Buckets = std::vector<LengthBucket>;
  expect_refused([] { length_order({}, Buckets{{5}}); }, {"length_order", "number of samples", "seen 0"});
  expect_refused([&] { length_order(lengths, {}); }, {"at least one bucket"});
  expect_refused([&] { length_order(lengths, Buckets{{8}}); }, {"sample 1: expected a length of at most 8, seen 9"});
  expect_refused([&] { length_order(lengths, Buckets{{5}, {5}}); }, {"limits that ascend, seen 5 behind 5"});
  expect_refused([&] { length_order(lengths, Buckets{{9, -1}}); }, {"batch of a bucket", "seen -1"});
  expect_refused([&] { length_order(lengths, Buckets{{5}, {9}}, {.batch = 2}); }, {"no whole batch"});
  expect_refused([&] { length_order(lengths, Buckets{{9}}, {.world = 0}); }, {"a world"});
}

TEST(WeightedOrderTest, SamplesAreDrawnByTheirWeights) {
  for (const std::vector<double>& weights :
       {std::vector<double>{1, 2, 3, 4}, std::vector<double>{1, 1, 1, 1, 1, 1, 1},
        std::vector<double>{1e300, 1e300, 5e299}, std::vector<double>{1e-310, 3e-310},
        std::vector<double>{100, 1, 0.5, 20, 3, 7, 7}}) {
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0,
                                       [&](double total, double weight) { return total + weight / weights[0]; });
    constexpr std::int64_t kDraws = 30'000;
    std::vector<double> seen(weights.size()), expected;
    for (double weight : weights) expected.push_back(kDraws * (weight / weights[0]) / sum);
    const SampleOrder order = weighted_order(weights, kDraws, {.batch = 1000, .seed = 6});
    for (std::int64_t sample : epoch_of(order, 2).real) seen[static_cast<std::size_t>(sample)] += 1;
    expect_likely(seen, expected, std::to_string(weights.size()) + " weights");
  }
}

TEST(WeightedOrderTest, AWeightOf0IsNeverDrawn) {
  // The sums of these are rounded.
  for (int count : {2, 3, 10, 33, 1000}) {
    std::vector<double> weights;
    for (int i = 0; i < count; ++i) weights.push_back(i % 3 == 0 ? 0 : 0.1 * i / 7);
    const SampleOrder order = weighted_order(weights, 20'000, {.batch = 100});
    for (std::int64_t sample : epoch_of(order, 0).real) ASSERT_NE(sample % 3, 0) << count;
  }
}

TEST(WeightedOrderTest, RanksShareTheDraws) {
  const std::vector<double> weights{1, 2, 3, 4, 5, 6, 7, 8};
  const Ints whole = epoch_of(weighted_order(weights, 1000, {.batch = 10, .seed = 1}), 4).real;
  EXPECT_NE(whole, epoch_of(weighted_order(weights, 1000, {.batch = 10, .seed = 1}), 5).real);
  Ints joined(1000);
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const Ints part =
        epoch_of(weighted_order(weights, 1000, {.batch = 10, .seed = 1, .rank = rank, .world = 4}), 4).real;
    ASSERT_EQ(part.size(), 250u);
    for (std::size_t i = 0; i < part.size(); ++i) joined[4 * i + static_cast<std::size_t>(rank)] = part[i];
  }
  EXPECT_EQ(joined, whole);
}

TEST(LengthOrderTest, BatchesHaveSamplesOfOneBucket) {
  Ints lengths;
  for (std::int64_t i = 0; i < 500; ++i) lengths.push_back(i * 37 % 100);  // 0 to 99, each five times
  const std::vector<LengthBucket> buckets{{9, 16}, {49}, {50, 3}, {99, 4}};
  for (bool is_shuffled : {true, false}) {
    Ints real;
    std::vector<std::int64_t> first;
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      const SampleOrder order = length_order(
          lengths, buckets,
          {.batch = 8, .last_batch = LastBatch::shorter, .is_shuffled = is_shuffled, .rank = rank, .world = 2});
      EXPECT_EQ(order.batches(), 2 + 13 + 1 + 31);  // of 25, 100, 2.5 and 122.5 samples for each rank
      std::vector<std::int64_t> sequence;
      for (std::int64_t b = 0; b < order.batches(); ++b) {
        const Batch batch = order.batch(1, b);
        const auto bucket = static_cast<std::size_t>(batch.bucket);
        sequence.push_back(batch.bucket);
        EXPECT_LE(batch.samples.size(), static_cast<std::size_t>(bucket == 1 ? 8 : buckets[bucket].batch));
        for (std::int64_t sample : batch.samples) {
          EXPECT_LE(lengths[static_cast<std::size_t>(sample)], buckets[bucket].limit);
          if (bucket > 0) {
            EXPECT_GT(lengths[static_cast<std::size_t>(sample)], buckets[bucket - 1].limit);
          }
        }
        real.insert(real.end(), batch.samples.begin(), batch.samples.begin() + batch.real);
      }
      EXPECT_EQ(std::is_sorted(sequence.begin(), sequence.end()), !is_shuffled);
      if (rank == 0) first = sequence;
      EXPECT_EQ(sequence, first) << "ranks have different buckets at the same time";
    }
    std::sort(real.begin(), real.end());
    Ints all(500);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(real, all);
  }
}

TEST(LengthOrderTest, ABucketOfTooFewSamplesHasNoBatch) {
  const Ints lengths{1, 1, 1, 50, 2, 99};
  const SampleOrder order = length_order(lengths, std::vector<LengthBucket>{{0}, {2}, {60}, {100, 1}}, {.batch = 4});
  EXPECT_EQ(order.batches(), 2);
  std::set<std::int64_t> buckets{order.batch(0, 0).bucket, order.batch(0, 1).bucket};
  EXPECT_EQ(buckets, (std::set<std::int64_t>{1, 3}));
}

}  // namespace
}  // namespace graphsink::order_test
