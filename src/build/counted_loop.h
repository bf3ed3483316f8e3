// Loops that count their iterations and have a limit: those whose iterations can be kept, for gradients and for scan().
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "graphsink/control.h"
#include "ir/graph_data.h"

namespace graphsink {

// A while_ whose state has one more Value at its end, the i32 number of the iteration, from 0. Condition, body and the
// result have that Value; the body returns the others. The condition must not hold when the number is `limit`, which is
// at least 1. `init` may be empty. Errors name `op`.
Values counted_loop(const char* op, GraphData& graph, std::span<const Arg> init,
                    const std::function<Value(const Values&)>& condition,
                    const std::function<Values(const Values&)>& body, std::int64_t limit, const Where& where);

// The same for a loop that runs exactly `iterations` times, at least once.
Values fixed_loop(const char* op, GraphData& graph, std::span<const Arg> init,
                  const std::function<Values(const Values&)>& body, std::int64_t iterations, const Where& where);

// The square root of the number of iterations of a loop, rounded up: for a loop of loops that keeps few states.
std::int64_t segment_length(std::int64_t iterations);

}  // namespace graphsink
