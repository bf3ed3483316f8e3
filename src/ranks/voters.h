// The groups of ranks that run a plan together.
#pragma once

#include <string>
#include <vector>

#include "graphsink/error.h"
#include "ir/agreement.h"
#include "ranks/rank_group.h"

namespace graphsink {

struct Voters {
  // All of its ranks run the plan, and agree on every step: the only group of the plan, or the smallest one of which
  // all of the plan's groups are parts.
  RankGroup* all = nullptr;
  // The groups of the plan's collectives, each once, in an order that does not depend on the rank.
  std::vector<RankGroup*> groups;
};

// Throws Error where the groups are parts of different ones.
Voters voters_of(const Agreement& agreement, const Where& where);

// Equal for the same group on all of its ranks alone.
std::string name_of(const RankGroup& group);

}  // namespace graphsink
