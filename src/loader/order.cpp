#include "graphsink/order.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/at.h"
#include "loader/alias_table.h"
#include "loader/draws.h"
#include "loader/permutation.h"

namespace graphsink {

// Samples that share batches: all of them, or those of a bucket.
struct SampleGroup {
  std::int64_t count = 0;               // samples of all ranks in an epoch
  std::int64_t batch = 0;               // samples in a batch
  std::vector<std::int64_t> members{};  // indices of the samples; empty: 0 to count - 1
  std::int64_t each = 0;                // samples of each rank
  std::int64_t batches = 0;             // batches of each rank
};

namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 62, kMostBatch = std::int64_t{1} << 31;

std::int64_t rounded_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

void check_range(const char* op, const char* what, std::int64_t seen, std::int64_t least, std::int64_t most,
                 Where where) {
  if (seen >= least && seen <= most) return;
  throw Error(op, where,
              std::string("expected ") + what + " from " + std::to_string(least) + " to " + std::to_string(most) +
                  ", seen " + std::to_string(seen),
              "choose one in this range");
}

void check_options(const char* op, const OrderOptions& options, Where where) {
  check_range(op, "a batch", options.batch, 1, kMostBatch, where);
  check_range(op, "a world", options.world, 1, kMostBatch, where);
  check_range(op, "a rank", options.rank, 0, options.world - 1, where);
}

}  // namespace

class SampleOrder::Data {
 public:
  Data(const char* op, std::int64_t size, std::vector<SampleGroup> groups, std::optional<AliasTable> weights,
       const OrderOptions& options, Where where)
      : options_(options), size_(size), groups_(std::move(groups)), weights_(std::move(weights)) {
    for (SampleGroup& group : groups_) {
      group.each = options.pads_ranks ? rounded_up(group.count, options.world) : group.count / options.world;
      group.batches =
          options.last_batch == LastBatch::drop ? group.each / group.batch : rounded_up(group.each, group.batch);
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + group.batches);
    }
    if (batches() > 0) return;
    throw Error(op, where,
                "an epoch has no whole batch: batches of " + std::to_string(options.batch) + " samples for each of " +
                    std::to_string(options.world) + " ranks",
                "use smaller batches, or LastBatch::pad or LastBatch::shorter");
  }

  std::int64_t size() const noexcept { return size_; }
  std::int64_t batches() const noexcept { return ends_.back(); }

  Batch batch(std::int64_t epoch, std::int64_t number) const {
    if (options_.is_shuffled && groups_.size() > 1) {
      number = Permutation(batches(), key_of(options_.seed, epoch, Purpose::shuffle_batches))[number];
    }
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), number);
    const auto bucket = static_cast<std::size_t>(end - ends_.begin());
    const SampleGroup& group = groups_[bucket];
    const std::int64_t first = (number - (*end - group.batches)) * group.batch;
    std::int64_t count = group.batch;
    if (options_.last_batch == LastBatch::shorter) count = std::min(count, group.each - first);

    Batch result;
    result.bucket = static_cast<std::int64_t>(bucket);
    result.samples.reserve(static_cast<std::size_t>(count));
    const auto part = static_cast<std::uint32_t>(bucket);
    const PhiloxKey key = key_of(options_.seed, epoch, weights_ ? Purpose::weights : Purpose::shuffle, part);
    const Permutation permutation(group.count, key);
    for (std::int64_t i = first; i < first + count; ++i) {
      const std::int64_t position = i % group.each * options_.world + options_.rank;
      if (i < group.each && position < group.count) ++result.real;
      std::int64_t sample = position % group.count;
      if (weights_) {
        sample = weights_->draw(words_at(key, sample));
      } else if (options_.is_shuffled) {
        sample = permutation[sample];
      }
      result.samples.push_back(group.members.empty() ? sample : group.members[static_cast<std::size_t>(sample)]);
    }
    return result;
  }

 private:
  OrderOptions options_;
  std::int64_t size_;
  std::vector<SampleGroup> groups_;
  std::vector<std::int64_t> ends_;  // for each group, the batches of it and of those before
  std::optional<AliasTable> weights_;
};

std::int64_t SampleOrder::size() const noexcept { return data_->size(); }
std::int64_t SampleOrder::batches() const noexcept { return data_->batches(); }

Batch SampleOrder::batch(std::int64_t epoch, std::int64_t number, Where where) const {
  if (epoch < 0 || number < 0 || number >= batches()) {
    throw Error("SampleOrder::batch", where,
                "expected an epoch from 0 on and a batch from 0 to " + std::to_string(batches()) +
                    " (exclusive), seen epoch " + std::to_string(epoch) + " and batch " + std::to_string(number),
                "begin the next epoch with batch 0");
  }
  return data_->batch(epoch, number);
}

SampleOrder sample_order(std::int64_t size, const OrderOptions& options, Where where) {
  check_range("sample_order", "a number of samples", size, 1, kMostSamples, where);
  check_options("sample_order", options, where);
  return SampleOrder(std::make_shared<SampleOrder::Data>(
      "sample_order", size, std::vector<SampleGroup>{{.count = size, .batch = options.batch}}, std::nullopt, options,
      where));
}

SampleOrder weighted_order(std::span<const double> weights, std::int64_t samples, const OrderOptions& options,
                           Where where) {
  auto refuse = [&](const std::string& problem, const std::string& remedy) {
    throw Error("weighted_order", where, problem, remedy);
  };
  check_range("weighted_order", "a number of samples", samples, 1, kMostSamples, where);
  check_options("weighted_order", options, where);
  if (!options.is_shuffled) refuse("draws are random, but is_shuffled is false", "leave is_shuffled as it is");
  bool has_some = false;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0) {
      refuse("weight " + std::to_string(i) + ": expected a finite number of at least 0",
             "give probabilities or counts");
    }
    has_some = has_some || weights[i] > 0;
  }
  if (!has_some) refuse("expected a weight above 0, seen none", "give probabilities or counts");
  return SampleOrder(std::make_shared<SampleOrder::Data>(
      "weighted_order", static_cast<std::int64_t>(weights.size()),
      std::vector<SampleGroup>{{.count = samples, .batch = options.batch}}, AliasTable(weights), options, where));
}

SampleOrder length_order(std::span<const std::int64_t> lengths, std::span<const LengthBucket> buckets,
                         const OrderOptions& options, Where where) {
  auto refuse = [&](const std::string& problem, const std::string& remedy) {
    throw Error("length_order", where, problem, remedy);
  };
  check_range("length_order", "a number of samples", static_cast<std::int64_t>(lengths.size()), 1, kMostSamples, where);
  check_options("length_order", options, where);
  if (buckets.empty()) refuse("expected at least one bucket, seen none", "give the limits of lengths");
  std::vector<SampleGroup> groups;
  for (const LengthBucket& bucket : buckets) {
    if (!groups.empty() && bucket.limit <= buckets[groups.size() - 1].limit) {
      refuse("expected limits that ascend, seen " + std::to_string(bucket.limit) + " behind " +
                 std::to_string(buckets[groups.size() - 1].limit),
             "sort the buckets");
    }
    check_range("length_order", "a batch of a bucket", bucket.batch, 0, kMostBatch, where);
    groups.push_back({.count = 0, .batch = bucket.batch == 0 ? options.batch : bucket.batch});
  }
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto found = std::lower_bound(buckets.begin(), buckets.end(), lengths[i],
                                        [](const LengthBucket& bucket, std::int64_t n) { return bucket.limit < n; });
    if (found == buckets.end()) {
      refuse("sample " + std::to_string(i) + ": expected a length of at most " + std::to_string(buckets.back().limit) +
                 ", seen " + std::to_string(lengths[i]),
             "add a bucket, or leave long samples out");
    }
    SampleGroup& group = groups[static_cast<std::size_t>(found - buckets.begin())];
    group.members.push_back(static_cast<std::int64_t>(i));
    ++group.count;
  }
  return SampleOrder(std::make_shared<SampleOrder::Data>("length_order", static_cast<std::int64_t>(lengths.size()),
                                                         std::move(groups), std::nullopt, options, where));
}

}  // namespace graphsink
