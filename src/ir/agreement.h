// Agreement: the collectives of a plan, which all ranks of a group must have in common to run it together.
#pragma once

#include <vector>

#include "graphsink/attrs.h"
#include "graphsink/error.h"
#include "graphsink/op.h"
#include "graphsink/type.h"

namespace graphsink {

// A collective of a plan.
struct CollectiveUse {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<TensorType> types;  // types of the inputs, then of the outputs
  Where where;
  int id = -1;              // number of the node in the user's graph
  bool is_in_body = false;  // in the body of a loop or branch
};

// Attributes of the node of OpTraits::agree: the collectives of the plan, in the order in which they run.
struct Agreement {
  std::vector<CollectiveUse> collectives;
};

}  // namespace graphsink
