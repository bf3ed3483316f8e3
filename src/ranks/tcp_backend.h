// The RankBackend that moves bytes over TCP, by ZeroMQ.
#pragma once

#include <memory>

#include "graphsink/error.h"
#include "ranks/rank_backend.h"
#include "ranks/rank_start.h"

namespace graphsink {

// All ranks of a start by variables. The first call in a process waits for all of them, and throws Error if one does
// not come within the patience; later ones make a further group of the same ranks.
std::unique_ptr<RankBackend> open_tcp(const RankStart& start, double patience_s, const Where& where);

}  // namespace graphsink
