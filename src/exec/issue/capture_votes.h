// The texts by which ranks whose values a device exchanges agree about captures: for the library that exchanges them, a
// collective is captured on all ranks or on none, and capturing it may take all of them.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "ir/agreement.h"

namespace graphsink {

class CaptureVotes {
 public:
  explicit CaptureVotes(const RankWait& ranks) : ranks_(ranks) {}

  // Returns the least of the ranks' numbers, which are about a launch of `steps` steps. All ranks call it, and wait for
  // each other. Throws Error on all of them if theirs are about launches of other numbers of steps, and where one does
  // not come.
  std::int64_t least(std::int64_t steps, std::int64_t mine) const;

  // Why a rank drops its capture, or makes none.
  static CaptureFailed refused();

 private:
  const RankWait& ranks_;
};

}  // namespace graphsink
