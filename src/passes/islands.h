// Islands: the runs of tasks that a launch holds, or that the host issues one by one.
#pragma once

#include <vector>

#include "base/function_ref.h"
#include "passes/passes.h"

namespace graphsink {

// Whether an island that the host drives may run beside launches.
using CanBeBeside = FunctionRef<bool(const Island&)>;

// Splits the tasks into maximal runs in which `sinks` is the same for all tasks.
std::vector<Island> runs_of(const std::vector<int>& tasks, FunctionRef<bool(int)> sinks);

// Divides a launch, so that the next island, which the host drives, can run beside its second half. Each launch costs
// time, so only one is divided: the launch with the most work that the next island does not wait for. `can_be_beside`
// must hold for that island.
void divide_launch(const Plan& plan, std::vector<Island>& islands, const Dependencies& deps, CanBeBeside can_be_beside);

// Sets Island::after and Island::beside of all islands. `commit` is the first task of the commit, which waits for
// everything before it.
void connect(std::vector<Island>& islands, const Dependencies& deps, int commit, CanBeBeside can_be_beside);

// Divides launches into parts for split_sink, in which a launch ends where an op on the host begins. The commit is part
// of the last launch.
void divide_at_host_ops(Plan& plan, const Dependencies& deps, int commit, bool has_streams);

// See Plan::split_islands.
std::vector<Island> split_islands(const Plan& plan);

}  // namespace graphsink
