// Calls OpDef::prepare.
#pragma once

#include "graphsink/op.h"

namespace graphsink {

// Returns what the op's prepare() does, which must not be nullptr. Throws Error, naming the op, for a workspace that is
// larger than any memory, so that sums of workspaces do not exceed their type.
Prepared call_prepare(const OpDef& op, const PrepareArgs& args);

}  // namespace graphsink
