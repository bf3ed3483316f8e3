// Attributes of the ops that exchange values between ranks, and the op by which ranks agree.
#pragma once

#include <memory>

#include "graphsink/op.h"
#include "graphsink/ranks.h"

namespace graphsink {

struct CollectiveAttrs {
  std::shared_ptr<RankGroup> group;
  Reduction reduction = Reduction::sum;
  int root = 0;
};

// By which the ranks agree on a step, and on their plans: OpTraits::agree of all collectives.
extern const OpDef agree_op;

}  // namespace graphsink
