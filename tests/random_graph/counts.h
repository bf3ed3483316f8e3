// What random graphs and their plans are made of: so that a test can say what it has not tried.
#pragma once

#include <map>
#include <string>

#include "ir/plan.h"
#include "random_graph.h"

namespace graphsink::testing {

using Counts = std::map<std::string, int>;

// Adds what there is in a graph.
void count(const Building& building, Counts& counts);
// Adds what a device makes of it.
void count(const Plan& plan, Counts& counts);

// The names of all that is counted; with `separate_memory` also those that only plans for such a device can have, with
// `several_devices` also those that need two of them.
std::vector<std::string> counted(bool separate_memory, bool several_devices);

}  // namespace graphsink::testing
