// Times of data-parallel training: when the gradients of a step went to the other ranks, and when they were back; and
// the lanes of all ranks together.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "graphsink/ranks.h"
#include "profiling/clock.h"
#include "samples/models/model.h"

namespace graphsink::bench {

// The times of each step that has run: when all gradients were there, and when their means were.
using Exchanges = std::vector<Clock::time_point>;
// Averages gradients over the ranks, and notes into `times`, from the thread that runs the step, when it does. Sync the
// program before you read them. On the CPU.
models::Sharing timed_sharing(const Comm& comm, std::shared_ptr<Exchanges> times);

// The lanes of all ranks, in their order, each named after its rank; on every rank.
nlohmann::json lanes_of_ranks(const Comm& comm, const nlohmann::json& lanes);

}  // namespace graphsink::bench
