// The passes that finish a Plan after lower() has made its nodes and schedule (planner_ir.h declares the passes before
// that), and what they share. All are pure functions on plain data.
#pragma once

#include "ir/graph_data.h"
#include "ir/system_ops.h"
#include "passes/plan_queries.h"

namespace graphsink {

// Makes ops write results of bodies, and initial states of loops, to where copies would bring them, and removes the
// copies.
void coalesce_copies(Plan& plan);

// Tells whether the node may store the output of the alias, which its op declares, in the memory of the input.
bool may_be_in_place(const PlanNode& node, Alias alias);

// Completes the reasons of place() with what each op on the host costs.
void add_costs(Plan& plan);

// By the id of each task of the schedule, or of a body: the ids of the earlier ones in it that it must follow, because
// of what they read, write and do on the host. Tasks of other sequences have none.
using Dependencies = std::vector<std::vector<int>>;
Dependencies dependencies(const Plan& plan, int sequence = 0);

// The first task of the commit, which is the end of the schedule. It follows all else, but for copies that tell further
// devices how the step stands. The target commits on stream 0.
int first_commit_task(const Plan& plan);

// Whether the task follows all that stand before it: ranks agree on the step there, or further devices hear of it.
bool is_last_of_all(const Plan& plan, const Task& task);

// The first task of the step that is last of all, or commits.
int first_end_task(const Plan& plan);

// Adds a task to the end of a sequence. Returns its id.
int add_task(Plan& plan, int sequence, Task task);

// Brings the schedule into an order that takes the fewest islands, cuts it into those, and gives the tasks ids that
// ascend along the schedule. The passes behind it rely on that order of ids.
void partition(Plan& plan);

// Decides how runs of several steps are launched: as a loop, as launches with up to `most_nodes` tasks, or step by
// step, for which the plan gets the reason.
void launch_several_steps(Plan& plan, std::size_t most_nodes);

// Gives each task of the schedule a stream and the streams it must wait for.
void assign_streams(Plan& plan);

// Decides which kernels captured graphs launch programmatically.
void choose_programmatic_launches(Plan& plan);

// Gives each arena buffer an offset such that buffers that may be live at once do not overlap.
void assign_memory(Plan& plan);

// The buffers that a task reads and writes, including those of its bodies. To save allocations in a loop over many
// tasks, pass the result for the previous task as `reused`.
struct Touched {
  std::vector<int> reads;
  std::vector<int> writes;
};
Touched touched(const Plan& plan, const Task& task, Touched reused = {});

// A number for each stream of a plan.
using PerStream = std::array<int, kMaxStreams>;

// When a task runs: its serial numbers in issue order, and what is known to be complete before it starts. A branch or
// loop begins before the tasks of its bodies and ends after them.
struct Timing {
  int begin = 0;
  int end = 0;
  int stream = 0;
  int index = 0;         // position in its stream; of a task in a body, that of the enclosing task of the schedule
  PerStream complete{};  // per stream: this many of its tasks are complete before this one starts
};

// The part of the schedule during which a buffer is needed.
struct Lifetime {
  int buffer = -1;
  Timing defined;
  int last_end = -1;   // serial of its last use; kForever: until the next run
  PerStream needed{};  // per stream: free for reuse once this many of its tasks are complete
};
constexpr int kForever = 1 << 30;

// Lifetimes of all buffers in arenas and in the host arena, in order of definition, without those that are never used.
std::vector<Lifetime> lifetimes(const Plan& plan);

}  // namespace graphsink
