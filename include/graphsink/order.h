// SampleOrder: which samples each batch of each epoch consists of. It is a function of the options, the epoch and the
// number of the batch alone: any batch can be asked for without those before it, so that a run resumes from two
// numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// How the last batch of an epoch comes about if there are too few samples for a whole one.
enum class LastBatch : std::uint8_t {
  drop,     // it is left out
  pad,      // it is filled with samples from the beginning of the epoch, which Batch::real does not count
  shorter,  // it has fewer samples
};

// Options of sample_order(), weighted_order() and length_order().
struct OrderOptions {
  std::int64_t batch = 1;                  // samples in a batch of one rank, 1 to 2^31
  LastBatch last_batch = LastBatch::drop;  // by default an epoch has whole batches only
  bool is_shuffled = true;                 // each epoch in another random order; otherwise always from 0 on
  std::uint64_t seed = 0;                  // the same seed gives the same order on every machine
  // The processes that share an epoch: this one gets every world-th sample, beginning with number `rank` of the order.
  std::int64_t rank = 0;
  std::int64_t world = 1;  // number of these processes, 1 to 2^31
  // All ranks have equally many samples. Where these do not divide evenly: true repeats the first samples of the epoch
  // at its end, which Batch::real does not count; false leaves the last ones of the epoch out.
  bool pads_ranks = true;
};

// A batch of an epoch, for one rank.
struct Batch {
  std::vector<std::int64_t> samples;  // indices for Source::read()
  // The first `real` of them are samples in their turn. The others are padding: a mean over the epoch must leave them
  // out.
  std::int64_t real = 0;
  std::int64_t bucket = 0;  // the number of the LengthBucket; 0 without buckets
};

struct LengthBucket;

// Copies are cheap. It does not change after it was made: any number of threads may ask it at once.
class SampleOrder {
 public:
  // Samples that it knows: those of its batches are numbered from 0 to size() - 1.
  std::int64_t size() const noexcept;
  // Batches in every epoch, at least 1, the same for each rank.
  std::int64_t batches() const noexcept;
  // Batch `number` of an epoch, both from 0. All batches of an epoch, of all ranks, have each sample once as a real
  // one, except for what was left out, and for weighted_order(), which draws them. Takes time in proportion to the
  // batch. Throws Error for a negative epoch or a number outside of [0, batches()).
  Batch batch(std::int64_t epoch, std::int64_t number, Where where = Where::current()) const;

 private:
  friend SampleOrder sample_order(std::int64_t size, const OrderOptions& options, Where where);
  friend SampleOrder weighted_order(std::span<const double> weights, std::int64_t samples, const OrderOptions& options,
                                    Where where);
  friend SampleOrder length_order(std::span<const std::int64_t> lengths, std::span<const LengthBucket> buckets,
                                  const OrderOptions& options, Where where);
  class Data;
  explicit SampleOrder(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

  std::shared_ptr<const Data> data_;
};

// Samples 0 to size - 1, each once in an epoch. Shuffling takes no memory, however many there are. Throws Error for a
// size outside of [1, 2^62], options outside of their ranges, and an epoch without a batch.
SampleOrder sample_order(std::int64_t size, const OrderOptions& options = {}, Where where = Where::current());

// Samples drawn at random with replacement: sample i with probability weights[i] / (sum of all), `samples` draws in an
// epoch of all ranks together. OrderOptions::is_shuffled must be true. Takes 16 bytes of memory for each weight, which
// are copied. Throws Error, too, for no weights, for weights that are negative or not finite, and where none is above
// 0.
SampleOrder weighted_order(std::span<const double> weights, std::int64_t samples, const OrderOptions& options = {},
                           Where where = Where::current());

// Samples whose length is at most `limit` and above the limit of the bucket before.
struct LengthBucket {
  std::int64_t limit = 0;  // greatest length of a sample in this bucket
  std::int64_t batch = 0;  // samples in a batch of this bucket; 0: OrderOptions::batch
};
// Each batch consists of samples of one bucket: lengths[i] is the length of sample i. All ranks have the same bucket at
// the same number of a batch. OrderOptions::last_batch and pads_ranks hold for each bucket of its own, so a small
// bucket may have no batch. If the order is shuffled, so are the samples of each bucket and the sequence of buckets,
// otherwise they come one after the other. Takes 8 bytes of memory for each sample. Throws Error, too, for limits that
// do not ascend, and for a sample that is longer than all of them.
SampleOrder length_order(std::span<const std::int64_t> lengths, std::span<const LengthBucket> buckets,
                         const OrderOptions& options = {}, Where where = Where::current());

}  // namespace graphsink
