// The parts of a Loader that its threads share: a launch in the making, and how one sample of it is made.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "graphsink/data_loader.h"

namespace graphsink::data_loading {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Adds the seconds of its life to a sum, whether an exception ends it or not.
class Lap {
 public:
  explicit Lap(double& sum) : sum_(sum) {}
  ~Lap() { sum_ += seconds_since(start_); }
  Lap(const Lap&) = delete;
  Lap& operator=(const Lap&) = delete;

 private:
  double& sum_;
  const Clock::time_point start_ = Clock::now();
};

// A part of each sample as the receiver takes it: that of a feed, or of a slice.
struct Part {
  TensorType type;        // type of one sample
  std::size_t field = 0;  // number of the field that it takes as it is, where samples are not prepared
};

// Where the samples of a launch go for one Part.
struct Place {
  std::byte* first = nullptr;  // the place of the first batch
  std::int64_t stride = 0;     // bytes from batch to batch
};

// The memory that the batches of a launch are made in. Dropped by any thread.
class LaunchMemory {
 public:
  virtual ~LaunchMemory() = default;
  // Hands over the first `steps` batches that were not handed over yet, all of which are made. On the thread of the
  // loader.
  virtual void give(std::int64_t steps, const Where& where) = 0;
};

// The batches of a launch, which are made sample by sample and returned in order, by one call of next() or by several.
struct Launch {
  LoaderPosition begin;
  std::vector<Batch> batches;  // all of one size
  std::vector<Place> places;   // by Part
  bool ends_epoch = false;

  // Used by the thread of the loader alone.
  std::unique_ptr<LaunchMemory> memory;
  std::int64_t given = 0;   // number of batches that were returned
  bool is_starved = false;  // a call of next() had to wait, which is not counted yet

  // Used by all threads; the mutex of the workers guards it.
  std::int64_t taken = 0;             // number of samples
  std::vector<std::int64_t> missing;  // by batch: samples that are not made yet
  std::int64_t ready = 0;             // number of batches, from the first on, of which none is missing
  std::int64_t failed = -1;           // number of the first sample that failed; -1: none
  std::exception_ptr error;

  std::int64_t size() const { return static_cast<std::int64_t>(batches.size()); }
  std::int64_t batch_size() const { return static_cast<std::int64_t>(batches[0].samples.size()); }
  std::int64_t samples() const { return batch_size() * size(); }
  // The batches from the first on that may be returned: of those that are ready, the ones before the first failure.
  std::int64_t usable() const { return failed < 0 ? ready : std::min(ready, failed / batch_size()); }
  // Notes that sample `number` is made, or has failed. Returns whether more batches are ready.
  bool made(std::int64_t number) {
    const std::int64_t before = ready;
    --missing[static_cast<std::size_t>(number / batch_size())];
    while (ready < size() && missing[static_cast<std::size_t>(ready)] == 0) ++ready;
    return ready > before;
  }
};

struct Seconds {
  double read = 0, prepared = 0;
};

// Everything that a thread needs to read samples.
class Reader {
 public:
  Reader(const Source& source, const std::vector<Part>& parts, const Prepare& prepare, std::uint64_t seed, Where where)
      : source_(source),
        parts_(parts),
        prepare_(prepare),
        seed_(seed),
        where_(where),
        from_(source.fields().size()),
        to_(parts.size()) {
    if (prepare_)
      for (const Field& field : source.fields()) raw_.emplace_back(field.type.bytes());
  }

  Seconds read(const Launch& launch, std::int64_t number) {
    const std::int64_t size = launch.batch_size(), step = number / size, row = number % size;
    const std::int64_t sample = launch.batches[static_cast<std::size_t>(step)].samples[static_cast<std::size_t>(row)];
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const Place& place = launch.places[p];
      const std::size_t bytes = parts_[p].type.bytes();
      to_[p] = {place.first + step * place.stride + row * static_cast<std::int64_t>(bytes), bytes};
    }
    if (prepare_) {
      std::copy(raw_.begin(), raw_.end(), from_.begin());
    } else {
      for (std::size_t p = 0; p < parts_.size(); ++p) from_[parts_[p].field] = to_[p];
    }
    Seconds took;
    Clock::time_point start = Clock::now();
    source_.read(sample, from_, where_);
    took.read = seconds_since(start);
    if (!prepare_) return took;
    start = Clock::now();
    prepare_({seed_, launch.begin.epoch, sample}, from_, to_);
    took.prepared = seconds_since(start);
    return took;
  }

 private:
  const Source& source_;
  const std::vector<Part>& parts_;
  const Prepare& prepare_;
  const std::uint64_t seed_;
  const Where where_;                        // line that made the Loader
  std::vector<std::vector<std::byte>> raw_;  // the fields of a sample that is to be prepared
  std::vector<std::span<std::byte>> from_, to_;
};

}  // namespace graphsink::data_loading
