// Plan: what the passes make of a graph for a target. Plain data; no device is needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/graph.h"
#include "graphsink/op.h"
#include "graphsink/plan_summary.h"
#include "graphsink/target.h"
#include "ir/bound_node.h"

namespace graphsink {

// Kind of memory of a buffer. Its address follows from the kind when the plan is bound.
enum class Storage : std::uint8_t {
  arena,            // device memory, at `offset` of the program's arena on that device
  host_arena,       // pinned host memory, at `offset`
  invariant,        // pinned host memory that only Plan::invariant_copies write, at `offset`
  invariant_there,  // the same in the memory of a device
  input,            // device memory that keeps what was written; index: source node
  constant,         // device memory, filled when the plan is bound; index: source node
  host_constant,    // the same in host memory, for CPU bodies on a device with separate memory
  variable,         // device memory of the Variable; index: into Plan::variables
  step,             // the step's number and the seed, in the step block
  step_block,       // the step block
  feed_table,       // array of addresses in device memory: where the slices of each feed begin
  feed_strides,     // array of i64 in device memory: for each feed the bytes from slice to slice
  record_ring,      // the rings of all records, f64, one after the other: host memory that the device writes
};

// A piece of memory that holds one or several values, one after the other in time.
struct Buffer {
  Storage storage = Storage::arena;
  std::size_t bytes = 0;   // bytes of the value, not rounded
  std::size_t offset = 0;  // offset in bytes in the arena or among the invariant copies: a multiple of 256
  int index = -1;
  int device = 0;  // index into Plan::devices of the device whose memory it is, if it is a device's
};

// A call of an op: a node of the graph, several that were fused, or one that a pass added.
struct PlanNode {
  const OpDef* op = nullptr;
  Attrs attrs;
  Where where;
  int id = -1;                    // number of the node in the graph; -1 if a pass added it
  int graph_node = -1;            // the same, but that a copy of a node, made by grad(), has a number of its own
  int inputs = 0;                 // the number of operands that are inputs
  std::int16_t device = 0;        // if not on_host: where it runs, an index into Plan::devices
  bool on_host = false;           // the CPU body runs, although the target is a device with separate memory
  bool is_last_of_all = false;    // it follows every task that stands before it in the schedule
  std::vector<int> operands;      // buffers of the inputs, then of the outputs; -1: only the type is used
  std::vector<TensorType> types;  // types of the operands
  // Kernels of the node that a captured graph launches programmatically.
  ProgrammaticLaunch programmatic = ProgrammaticLaunch::none;
};

enum class TaskKind : std::uint8_t { call, copy, branch, choice, loop };  // branch: if_, choice: switch_, loop: while_

// A wait that is made early: from here on `stream` waits for what was issued to `source` so far, because a later task
// on `stream` depends on that. Tasks on `stream` between the two rely on it, too. So a launch makes the wait even if it
// holds only some of these.
struct Fork {
  int stream = 0;
  int source = 0;  // the other stream
  int task = 0;    // id of the first task on `stream` that depends on it
};

// One item of a plan's schedule. Its id is its index in Plan::tasks; sequences, islands and forks refer to ids.
struct Task {
  TaskKind kind = TaskKind::call;
  int node = -1;           // index into Plan::nodes, if the task is a call
  int source = -1;         // buffer that is read: a copy's source, a branch's or loop's predicate, or a choice's index
  int destination = -1;    // buffer that is written, if the task is a copy
  int stream = 0;          // which of the plan's streams
  std::vector<int> after;  // the streams it waits for: for all that was issued to them before this task
  // Indices into Plan::sequences: then and else of a branch, bodies 0, 1, .. of a choice, or the body of a loop.
  std::vector<int> bodies;
  std::vector<Fork> forks;  // the waits to make before this task is issued
  int control = -1;         // index into Plan::controls, if the task is a branch, choice or loop
};

// Properties of a branch, choice or loop that its task does not hold.
struct PlanControl {
  Where where;
  // Why the host drives it: an index into Plan::reasons. -1: it is an IF, SWITCH or WHILE node of the launch around it.
  int reason = -1;
  int iterations = -1;         // number of iterations of a loop; -1: it depends on data, or is more than 1024
  int iterations_in_body = 1;  // as many of them are a run of its body, one after the other: a divisor of their number
  // Buffers that the iterations of a loop fill slice by slice, and that nothing writes before. They live as long as the
  // whole loop.
  std::vector<int> filled{};
};

// A set of tasks that is one launch (`sunk`) or that the host drives. Islands form a directed acyclic graph.
struct Island {
  std::vector<int> tasks;  // ids, in the order in which they are issued
  bool sunk = true;
  bool beside = false;         // runs on a stream of its own, beside those islands before it that it is not after
  bool starts_beside = false;  // when this one is done, another that runs beside those after it can begin
  std::vector<int> after{};    // the islands that must be done before this one begins: their numbers, ascending
  // Parts of a launch with ops on the host, in split_sink: see Plan::split_islands. Else empty.
  std::vector<Island> parts{};
};

// The schedule of the whole step, or of the body of a loop or branch: an order that respects every dependency.
struct Sequence {
  std::vector<int> tasks;  // ids
  // Islands of a body that the host drives, if a launch can hold a part of it: the launches, and what is issued op by
  // op between them, one after the other. Else empty. The islands of the step are Plan::islands.
  std::vector<Island> islands{};
};

// Visits tasks in the order in which their ids are listed. Must not outlive the plan.
class TaskRange {
 public:
  TaskRange(const std::vector<Task>& tasks, std::span<const int> ids) : tasks_(tasks.data()), ids_(ids) {}

  class Iterator {
   public:
    Iterator(const Task* tasks, const int* id) : tasks_(tasks), id_(id) {}
    const Task& operator*() const { return tasks_[*id_]; }
    Iterator& operator++() {
      ++id_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return id_ == other.id_; }

   private:
    const Task* tasks_;
    const int* id_;
  };
  Iterator begin() const { return {tasks_, ids_.data()}; }
  Iterator end() const { return {tasks_, ids_.data() + ids_.size()}; }

 private:
  const Task* tasks_;
  std::span<const int> ids_;
};

// A cached copy, on the host or on another device, of data that no step changes: of an input, or of a Variable that the
// program does not assign. It is not part of the step: a run refreshes it before its first step if the source was
// written since the last run.
struct InvariantCopy {
  int source = -1;  // buffer: the origin, or its copy on the host, which is refreshed before this one
  int destination = -1;
  int origin = -1;  // buffer of the input or Variable
};

// An input, a feed or a constant that the plan uses.
struct PlanSource {
  int node = -1;     // number in the graph
  std::string name;  // empty for constants
  TensorType type;   // type of the data; for a feed, of one slice
  Where where;
};
struct PlanFeed {
  int source = -1;  // number of the feed's node in the graph
  int buffer = -1;  // where each step loads its slice
};
struct PlanRecord {
  std::string name;
  int buffer = -1;
  TensorType type;
  std::int64_t capacity = 0;  // number of values, each of `type`, that its ring holds: a power of two
};
struct PlanOutput {
  std::string name;  // empty for Values that are read by handle
  int node = -1;     // number in the graph
  int output = 0;
  int buffer = -1;
  TensorType type;
};

// One of the devices that a plan may use, and what it needs there.
struct PlanDevice {
  Target target;
  int step_block = -1;  // buffer in which the ops of a further device report; -1: no node runs there
  std::size_t arena_bytes = 0;
  std::size_t invariant_bytes = 0;  // bytes of invariant copies
};

// The sets of input shapes that a program keeps; see Limits::shape_cache_bytes and shape_cache_shapes.
struct ShapeCacheFacts {
  std::size_t shapes = 0;
  std::size_t captured = 0;  // number of these sets that are captured
  std::size_t bytes = 0;     // an estimate
  std::uint64_t evicted = 0;
};

// Facts of a plan that are known only once a program has bound it or run it.
struct PlanFacts {
  std::vector<std::size_t>
      workspaces;               // bytes of scratch memory that each of Plan::nodes asks for; empty: not asked yet
  std::vector<Reason> reasons;  // launches that are not captured yet, or that the device refused to capture
  std::optional<ShapeCacheFacts> shape_cache;  // has a value for a graph with open dimensions
  std::string op_by_op;                        // why a step in mode sink runs op by op though the plan sinks, or ""
  std::string split_op_by_op;                  // the same for the mode split_sink
  bool is_step_by_step = false;     // whether a launch of several steps, which the plan allows, could not be captured
  std::int64_t unrolled_steps = 0;  // how many steps a launch holds at most, of Plan::unrolled_steps
};

// Result of joining element-wise ops, and reductions of their rows: see Tuning::fuse.
struct FusionReport {
  std::size_t ops = 0;    // number of ops that were joined
  std::size_t nodes = 0;  // number of nodes that they became
  std::size_t bytes = 0;  // bytes of results that are not stored in memory any more
  std::string obstacle;   // why ops that could be joined stay separate, or ""
};

// Ops that only move elements, such as permute, and are not needed: the ops around them read and write the elements
// where they are. Tuning::fuse turns that off, too.
struct AvoidedCopies {
  std::size_t ops = 0;
  std::size_t bytes = 0;  // bytes of the results of these ops
};

// Result of Tuning::programmatic_launch.
struct ProgrammaticReport {
  bool is_on = false;
  std::size_t nodes = 0;  // nodes whose first kernel is launched programmatically
  std::string obstacle;   // why none is, though it was asked for, or ""
};

struct Plan {
  std::vector<PlanDevice> devices;  // [0] has control flow; placements may ask for the others
  std::vector<Buffer> buffers;
  std::vector<PlanNode> nodes;
  std::vector<Task> tasks;  // by id
  std::vector<PlanControl> controls;
  std::vector<Sequence> sequences;  // [0] is the step
  std::vector<InvariantCopy> invariant_copies;
  std::vector<Variable> variables;
  std::vector<bool> variable_written;  // per variable: whether the commit writes it
  std::vector<int> variable_devices;   // per variable: in whose memory it lives, an index into `devices`
  std::vector<PlanSource> sources;
  std::vector<PlanFeed> feeds;
  std::vector<int> inputs;  // the nodes of buffers with Storage::input
  std::vector<PlanRecord> records;
  std::vector<PlanOutput> outputs;
  std::vector<Reason> reasons;
  std::vector<Island> islands;
  // Those of the mode split_sink, in which ops on the host are islands of their own: the same, with the parts of each
  // that has some in place of it, and numbered accordingly. Empty if that makes no difference.
  std::vector<Island> split_islands;
  int streams = 1;                   // number of streams that the schedule uses
  std::vector<int> stream_devices;   // per stream: its device, an index into `devices`; stream 0 is on device 0
  std::size_t host_arena_bytes = 0;  // bytes of values; workspaces of ops on the host come on top (PlanFacts)
  std::size_t host_invariant_bytes = 0;
  std::size_t value_bytes = 0;  // sum of all arena buffers of devices: what they would take if they shared no memory
  bool loop_over_steps = true;  // several steps can be one launch, as a loop
  // The most steps of a launch in which the tasks of a step stand once for each step: a power of two; 0: there is none.
  std::int64_t unrolled_steps = 0;
  FusionReport fusion;
  AvoidedCopies avoided_copies;
  ProgrammaticReport programmatic;

  const Target& target() const { return devices[0].target; }
  // The tasks of a sequence or an island, in order; not those of their bodies.
  TaskRange tasks_of(int sequence) const { return {tasks, sequences[static_cast<std::size_t>(sequence)].tasks}; }
  TaskRange tasks_of(const Island& island) const { return {tasks, island.tasks}; }

  // See the functions of Program of the same names, which add the facts.
  std::string explain(const PlanFacts& facts = {}) const;

  std::string explain_json(const PlanFacts& facts = {}) const;
  std::string explain_dot() const;
};

struct PlanOptions {
  bool check_finite = false;              // after every op with float outputs, clear ok if one is not finite
  bool fuse = true;                       // see Tuning::fuse
  bool programmatic_launch = false;       // see Tuning::programmatic_launch
  bool unroll_loops = false;              // see Tuning::unroll_loops, which is on: a Program asks for it
  std::size_t unrolled_nodes = 8192;      // see Limits::unrolled_nodes
  Placement default_placement{};          // placement of nodes for which the user asks for none
  std::vector<Target> further_targets{};  // at most kMaxFurtherTargets
};

// The concrete shapes of the open inputs: (source node, shape).
using InputShapes = std::vector<std::pair<int, Shape>>;

struct SystemOps;

// Runs all passes. Pure: no device is touched. Throws Error for graphs that cannot run on `target`.
// `system` are the ops that passes add (copies, stores, begin and end of the step).
Plan make_plan(const Graph& graph, const Target& target, const SystemOps& system, const InputShapes& shapes = {},
               const PlanOptions& options = {});

// Peak over the schedule of the bytes (rounded up to 256 each) of buffers of one device's arena that may be live at
// once; computed from the schedule alone, apart from the planner's own choice of offsets.
std::size_t live_bytes(const Plan& plan, int device = 0);

}  // namespace graphsink
