// The updates that ranks make together: what their programs have in common beside collectives.
#pragma once

#include <string>
#include <vector>

#include "graphsink/graph.h"
#include "ir/graph_data.h"
#include "ranks/rank_group.h"

namespace graphsink {

struct Updates {
  // The ops on which the gradients depend that the group averages, in this step and, through the Variables that it
  // updates, in later ones. A line for each: op, attributes, operands and types, which are equal on all ranks, then a
  // tab and the place.
  std::string ops;
  // The Variables that every rank updates with the same values, because these are computed from averaged gradients, and
  // those that such updates read: they have equal values on all ranks if they begin with them. Others, such as parts of
  // a model and shards, may differ.
  std::vector<Variable> equal;
};

// Empty if the group has no collective with CollectiveAttrs::same_program. Data may differ from rank to rank: inputs,
// constants that are no numbers, Variables that no average changes. So may what random ops draw, placements, and all
// that no gradient depends on, such as what one rank alone records.
Updates updates_of(const GraphData& graph, const RankGroup& group);

}  // namespace graphsink
