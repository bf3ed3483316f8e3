// The votes by which ranks whose values a device exchanges agree about modes and captures: for the library that
// exchanges them, a collective is captured on all ranks or on none, and capturing it may take all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "graphsink/mode.h"
#include "ir/agreement.h"

namespace graphsink {

// Those of runs in one mode. All ranks call each of these, and wait for each other. They throw Error on all of them if
// one is about to do something else, and where one does not come.
class CaptureVotes {
 public:
  CaptureVotes(const RankWait& ranks, Mode mode) : ranks_(ranks), mode_(mode) {}

  // The first run in the mode.
  void begin_mode() const;
  // Returns the least of the ranks' numbers, which are about a launch of `steps` steps.
  std::int64_t least(std::int64_t steps, std::int64_t mine) const;

  // Why a rank drops its capture, or makes none.
  static CaptureFailed refused();

 private:
  // The votes of all ranks, which are about to do the same.
  std::vector<RankVote> equal(const RankVote& mine) const;

  const RankWait& ranks_;
  const Mode mode_;
};

}  // namespace graphsink
