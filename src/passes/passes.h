// The passes that finish a Plan once lower() has made its nodes and schedule (planner_ir.h has those before), and what
// they ask about it. Each is a pure function on plain data.
#pragma once

#include <span>

#include "graphsink/memory.h"
#include "ir/graph_data.h"
#include "ir/system_ops.h"

namespace graphsink {

// Says what each op on the host costs, in the reasons of the placement.
void add_costs(Plan& plan);

// By the id of each task of the schedule: the ids of the earlier ones that it must follow, because of what they read,
// write and do on the host. Tasks of bodies have none.
using Dependencies = std::vector<std::vector<int>>;
Dependencies dependencies(const Plan& plan);

// The first task of the commit, which is the end of the schedule and runs after all else, on stream 0.
int first_commit_task(const Plan& plan);

// The device that carries out the task, or takes part in the copy besides the target.
int device_of(const Plan& plan, const Task& task);

// Which of the further devices the plan uses, as numbers of devices.
std::vector<int> used_further_devices(const Plan& plan);

// "cuda:1".
std::string device_name(const Plan& plan, int device);

// Whether the whole step is one launch.
bool sinks_whole(const Plan& plan);

// Whether the task is the CPU body of an op, on a device with separate memory.
bool is_on_host(const Plan& plan, const Task& task);

// Adds a task to the end of a sequence. Returns its id.
int add_task(Plan& plan, int sequence, Task task);

// Brings the schedule into an order that takes the fewest islands, cuts it into those, and gives the tasks ids that
// ascend along the schedule. The passes behind it rely on that order of ids.
void partition(Plan& plan);

// Gives each task of the schedule a stream and the streams it must wait for.
void assign_streams(Plan& plan);

// Gives each arena buffer an offset such that buffers that may be live at once do not overlap.
void assign_memory(Plan& plan);

// What a task reads and writes, bodies included. Loops over many tasks hand in what they got for the one before, whose
// memory is used again.
struct Touched {
  std::vector<int> reads;
  std::vector<int> writes;
};
Touched touched(const Plan& plan, const Task& task, Touched reused = {});

// A number for each stream of a plan.
using PerStream = std::array<int, kMaxStreams>;

// When each task of the schedule and of all bodies runs: serial numbers in issue order, and what is known to be
// complete by then. A control task begins before and ends after the tasks of its bodies.
struct Timing {
  int begin = 0;
  int end = 0;
  int stream = 0;
  int index = 0;         // position in its stream (of the enclosing task of the schedule)
  PerStream complete{};  // per stream: this many of its tasks are complete before this one starts
};

// How long a buffer is needed.
struct Lifetime {
  int buffer = -1;
  Timing defined;
  int last_end = -1;   // serial of its last use; kForever: until the next run
  PerStream needed{};  // per stream: free for reuse once this many of its tasks are complete
};
constexpr int kForever = 1 << 30;

// Lifetimes of all arena and host arena buffers, in order of definition; buffers that are never touched are left out.
std::vector<Lifetime> lifetimes(const Plan& plan);

// Bytes of the rings of all records.
std::size_t ring_bytes(const Plan& plan);

// Device memory that is asked for as one block takes this much.
std::size_t rounded_block(std::size_t bytes);

// The stream on which each node runs: bodies use that of the control task.
std::vector<int> node_streams(const Plan& plan);

// Bytes of scratch memory for each stream: as much as the op with the largest workspace there asks for; 0 if the facts
// do not tell. Bodies that run on the host of a device with separate memory have theirs in host memory.
struct Workspaces {
  std::vector<std::size_t> device;
  std::vector<std::size_t> host;
};
Workspaces workspaces(const Plan& plan, const PlanFacts& facts);

// Bytes of the host arena: the values of ops on the host, then their workspaces, stream by stream.
std::size_t host_arena_bytes(const Plan& plan, const PlanFacts& facts);

// memory_report() with as many bytes for the slices of each feed as given.
MemoryReport memory_report(const Plan& plan, const PlanFacts& facts, std::span<const std::size_t> feed_bytes);

}  // namespace graphsink
