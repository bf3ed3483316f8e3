// Where the values of a group of element-wise ops lie on the CPU. A slice that such a group computes of an input is not
// copied: its elements are read in the input.
#pragma once

#include <optional>
#include <vector>

#include "ir/fused.h"

namespace graphsink {

// A result whose elements lie in an input: runs of neighbours, at equal distances. All counts are elements.
struct RunsInInput {
  std::int64_t first = 0;  // where the first run begins
  std::int64_t run = 0;
  std::int64_t pitch = 0;  // from the beginning of a run to that of the next one, which comes after its end
};

// A group computes runs of neighbours: of each register, and of each input that is read in place, runs begin `pitch`
// elements apart; those of an output follow one another. Elements between two runs are computed like all others, and
// not used. By default each element is a run.
struct FusedLayout {
  std::int64_t run = 1, pitch = 1;
  std::vector<std::optional<RunsInInput>> in_place;  // by op: if it is not computed, but read in its input
};
FusedLayout layout_of(const FusedAttrs& group);

}  // namespace graphsink
