#include "graphsink/bucket.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "graphsink/error.h"

namespace graphsink {

std::int64_t Bucket::round_up(std::int64_t size) const {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (is_every_size()) return size;
  const std::int64_t least = std::max<std::int64_t>(size, 1);
  if (step_ == kPowersOfTwo) {
    if (least > kMost / 2) return -1;
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(least)));
  }
  if (step_ > 0) return least > kMost - step_ ? -1 : (least + step_ - 1) / step_ * step_;
  auto found = std::lower_bound(sizes_.begin(), sizes_.end(), least);
  return found == sizes_.end() ? -1 : *found;
}

Bucket next_power_of_two() {
  Bucket bucket;
  bucket.step_ = Bucket::kPowersOfTwo;
  return bucket;
}

Bucket multiples_of(std::int64_t step) {
  if (step < 1) throw Error("multiples_of", Where(), "the step is " + std::to_string(step), "give at least 1");
  Bucket bucket;
  bucket.step_ = step;
  return bucket;
}

Bucket one_of(std::vector<std::int64_t> sizes) {
  std::sort(sizes.begin(), sizes.end());
  if (sizes.empty()) throw Error("one_of", Where(), "there is no size", "give at least one");
  if (sizes[0] < 1) throw Error("one_of", Where(), "a size is " + std::to_string(sizes[0]), "give sizes of at least 1");
  Bucket bucket;
  bucket.sizes_ = std::move(sizes);
  return bucket;
}

std::string to_string(const Bucket& bucket) {
  if (bucket.is_every_size()) return "any size";
  if (bucket.step_ == Bucket::kPowersOfTwo) return "powers of 2";
  if (bucket.step_ > 0) return "multiples of " + std::to_string(bucket.step_);
  std::string text;
  for (std::int64_t size : bucket.sizes_) text += (text.empty() ? "one of " : ", ") + std::to_string(size);
  return text;
}

}  // namespace graphsink
