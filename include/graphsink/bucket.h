// Rules that round the sizes of an open dimension up, so that many sizes share few plans and captured graphs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Which sizes an open dimension may have in a plan. Data of any other size is padded with zeros to the next of them:
// see open(). Copies are cheap.
class Bucket {
 public:
  Bucket() = default;  // every size
  // The smallest size of the rule that is at least `size`, which is not negative; -1 if there is none.
  std::int64_t round_up(std::int64_t size) const;
  bool is_every_size() const { return step_ == 0 && sizes_.empty(); }  // whether nothing is rounded up
  friend bool operator==(const Bucket&, const Bucket&) = default;      // whether they are the same rule

 private:
  friend Bucket next_power_of_two();
  friend Bucket multiples_of(std::int64_t step);
  friend Bucket one_of(std::vector<std::int64_t> sizes);
  friend std::string to_string(const Bucket& bucket);
  static constexpr std::int64_t kPowersOfTwo = -1;

  std::int64_t step_ = 0;            // kPowersOfTwo, or of multiples; 0: neither
  std::vector<std::int64_t> sizes_;  // sizes of one_of(), ascending
};

// 1, 2, 4, 8 and so on.
Bucket next_power_of_two();
// `step`, 2 * step and so on. Throws Error if step < 1.
Bucket multiples_of(std::int64_t step);
// These sizes. write() throws Error for data that is larger than all of them. Throws Error if there is none, or one
// that is less than 1.
Bucket one_of(std::vector<std::int64_t> sizes);
// "powers of 2", "multiples of 64", "one of 16, 32, 64".
std::string to_string(const Bucket& bucket);

}  // namespace graphsink
