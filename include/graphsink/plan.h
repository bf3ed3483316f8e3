// Target, what a device can do, and Plan, what the passes make of a graph for it. Both are plain data: no device is
// needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graphsink/graph.h"
#include "graphsink/op.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Names a device; cpu() is the host itself.
struct DeviceId {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};
inline DeviceId cpu() { return {DeviceKind::cpu, 0}; }
inline DeviceId cuda(int index = 0) { return {DeviceKind::cuda, index}; }
std::string to_string(DeviceId id);  // "cpu", "cuda:0"
// The number of usable CUDA devices: 0 without a driver, without a device, or in a build without CUDA.
int cuda_device_count() noexcept;

// A plan uses at most this many streams, on all its devices together.
inline constexpr int kMaxStreams = 8;

// Capabilities of a device, which determine what one launch on it may hold.
struct Target {
  DeviceId id;
  std::string name = "cpu";      // "NVIDIA H200"
  int sm = 0;                    // compute capability times ten, 0 on the CPU
  bool separate_memory = false;  // the host cannot access its memory, so that CPU bodies need copies
  // Ops of a program for it can run on further devices, too (CompileOptions::further_devices).
  bool takes_further_devices = false;
  // Profilers show the nodes of its captured graphs (Program::write_node_names()).
  bool has_profiled_nodes = false;
  bool conditional_nodes = true;     // loops and branches can be part of a launch
  bool host_nodes_in_bodies = true;  // the bodies of loops and branches in a launch may hold CPU bodies of ops
  // Groups of element-wise ops become kernels that are compiled when the program is compiled (CompileOptions::fuse); or
  // why they do not. On the CPU no compiler is needed.
  bool compiles_kernels = false;
  std::string fusion_obstacle;
  // Kernels can be launched programmatically (CompileOptions::programmatic_launch): the device has compute capability
  // 9.0 or above, and so does the code of the library's kernels that it runs.
  bool launches_programmatically = false;
  int max_streams = kMaxStreams;
  std::vector<int> peers;  // CUDA devices to and from which it copies directly; other copies go through the host

  // Its ops run their CPU bodies, in threads of this process. A launch can hold each of them, whatever its traits say,
  // and holds no kernel.
  bool runs_cpu_bodies() const { return id.kind == DeviceKind::cpu; }

  static Target host() { return {}; }
  // A GPU with CUDA 13 (CUDA Programming Guide, "Conditional Graph Nodes"), to plan for one without having it. Whether
  // NVRTC is there is not known: set compiles_kernels for a plan with groups of element-wise ops.
  static Target cuda13(int sm = 90);
};

// Kind of memory of a buffer. Its address follows from the kind when the plan is bound.
enum class Storage : std::uint8_t {
  arena,            // device memory, at `offset` of the program's arena on that device
  host_arena,       // pinned host memory, at `offset`
  invariant,        // pinned host memory that only Plan::invariant_copies write, at `offset`
  invariant_there,  // the same in the memory of a further device
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
  int iterations = -1;  // number of iterations of a loop; -1: it depends on data, or is more than 1024
  // Buffers that the iterations of a loop fill slice by slice, and that nothing writes before. They live as long as the
  // whole loop.
  std::vector<int> filled;
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

// A cached copy, on the host or on a further device, of data that no step changes: of an input, or of a Variable that
// the program does not assign. It is not part of the step: a run refreshes it before its first step if the source was
// written since the last run.
struct InvariantCopy {
  int source = -1;  // buffer: the origin, or its copy on the host, which is refreshed before this one
  int destination = -1;
  int origin = -1;  // buffer of the input or Variable
};

// Explains a decision of the planner, or of a device, that costs the user time.
struct Reason {
  std::string what;    // "hash_tokens runs on the host"
  Where where;         // the user's line; may be empty
  std::string why;     // the rule that forced the decision
  std::string cost;    // cost of the decision in each step
  std::string remedy;  // advice to the user: what to do about it
  int node = -1;       // number of the node in the graph; -1 if it is not about one node
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
  std::int64_t capacity = 0;  // number of values that its ring holds: a power of two
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

// The sets of input shapes that a program keeps; see CompileOptions::shape_cache_bytes and shape_cache_shapes.
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
};

// Result of joining element-wise ops, and reductions of their rows: see CompileOptions::fuse.
struct FusionReport {
  std::size_t ops = 0;    // number of ops that were joined
  std::size_t nodes = 0;  // number of nodes that they became
  std::size_t bytes = 0;  // bytes of results that are not stored in memory any more
  std::string obstacle;   // why ops that could be joined stay separate, or ""
};

// Ops that only move elements, such as permute, and are not needed: the ops around them read and write the elements
// where they are (OpDef::strided). CompileOptions::fuse turns that off, too.
struct AvoidedCopies {
  std::size_t ops = 0;
  std::size_t bytes = 0;  // bytes of the results of these ops
};

// Result of CompileOptions::programmatic_launch.
struct ProgrammaticReport {
  bool is_on = false;
  std::size_t nodes = 0;  // nodes whose first kernel is launched programmatically
  std::string obstacle;   // why none is, though it was asked for, or ""
};

struct Plan {
  std::vector<PlanDevice> devices;  // [0] has control flow and Variables; placements may ask for the others
  std::vector<Buffer> buffers;
  std::vector<PlanNode> nodes;
  std::vector<Task> tasks;  // by id
  std::vector<PlanControl> controls;
  std::vector<Sequence> sequences;  // [0] is the step
  std::vector<InvariantCopy> invariant_copies;
  std::vector<Variable> variables;
  std::vector<bool> variable_written;  // per variable: whether the commit writes it
  std::vector<PlanSource> sources;
  std::vector<PlanFeed> feeds;
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
  bool loop_over_steps = true;  // several steps can be one launch
  FusionReport fusion;
  AvoidedCopies avoided_copies;
  ProgrammaticReport programmatic;

  const Target& target() const { return devices[0].target; }
  // The tasks of a sequence or an island, in order; not those of their bodies.
  TaskRange tasks_of(int sequence) const { return {tasks, sequences[static_cast<std::size_t>(sequence)].tasks}; }
  TaskRange tasks_of(const Island& island) const { return {tasks, island.tasks}; }

  // The plan as text: tasks in order with their ids, op, type, stream, memory and the user's line; then reasons. A loop
  // or branch is a WHILE, IF or SWITCH node of its launch, or the host drives it; under it stands what one run of each
  // body costs. Program::explain() adds the facts.
  std::string explain(const PlanFacts& facts = {}) const;

  // The same and more for a script: one JSON object with these keys, in this order. The text is UTF-8; other bytes in
  // names are replaced. Sizes are in bytes. A task of a body counts once, however often it runs. "where" is
  // "train.cpp:12" or null.
  //   device, target          "cuda:0", and the name of the device
  //   further_devices         other devices that the plan uses
  //   sinks_whole             whether the step is one launch
  //   launches_per_step       launches for a run of one step in mode sink, once it is captured, without those of bodies
  //                           that the host drives
  //   loop_over_steps         whether a run of several steps is one launch; if not, each step takes launches_per_step
  //   nodes, host_nodes       nodes, and how many of them run on the host of a device with separate memory
  //   streams
  //   copies                  of each step: count, to_host_bytes, to_device_bytes, within_device_bytes,
  //                           between_devices_bytes
  //   invariant_copies        copies that run only when their source was written; each: direction, bytes, source,
  //                           destination
  //   memory                  arena_bytes, host_arena_bytes (with workspaces, once they are known), invariant_bytes,
  //                           value_bytes, live_bytes (see live_bytes())
  //   avoided_copies          ops, bytes: see AvoidedCopies
  //   programmatic_launch     on, nodes (whose first kernel captured graphs launch so), obstacle (null, or why none is,
  //                           though CompileOptions::programmatic_launch is on)
  //   islands                 each: tasks (their ids, without those of bodies), sunk, nodes (bodies included), after
  //                           (the numbers of islands that must be done before), beside (see Island)
  //   split_islands           likewise, those of split_sink; empty if they are the same
  //   tasks                   the schedule; each: id, kind, op, where, device ("cuda:0" or "host"), stream, after (the
  //                           streams it waits for), forks (each: stream, source, task; see Fork), and
  //     kind "call"           ops (of a group of fused ops: their names), attributes (of the op, if it names them: see
  //                           fields.h; the first 16 elements of a list), programmatic (whether its first kernel is
  //                           launched so), inputs and outputs, each: type, access (inputs: read, write, shape_only),
  //                           buffer, memory
  //     kind "copy"           direction (to_host, to_device, within_device, between_devices), bytes, source,
  //                           destination
  //     kind "if", "while"    predicate, bodies (tasks of then, else; or of the one body)
  //     kind "switch"         index, bodies
  //     all three kinds       node ("IF", "WHILE" or "SWITCH" in its launch; null: the host drives it), reason (why the
  //                           host drives it: an index into `reasons`), iterations (of a loop, if they are known),
  //                           costs (of one run of each body: ops, host_ops, copies, to_host_bytes, to_device_bytes,
  //                           within_device_bytes, launches: if the host drives it, what mode sink launches in it),
  //                           islands (of each body: its launches, and what the host issues between them; see
  //                           Sequence; each: tasks, sunk, nodes)
  //   reasons                 each: what, why (the rule), where, cost, remedy
  // `buffer` is an index into `buffers`, `memory` its place as in the text; both are null where nothing is touched.
  std::string explain_json(const PlanFacts& facts = {}) const;

  // The same as a graph for graphviz (`dot -Tsvg`). A cluster for each island and for each body of if and while. Nodes
  // of the device are blue, of further ones green, of the host orange, copies small and white (invariant copies
  // dashed), branches and loops diamonds (orange where the host drives them); the numbers are the ids of tasks, as in
  // the text. An edge leads from each task that writes a buffer to each that may read what it wrote, so none leaves a
  // view; a dashed one from the last task of a stream to a task that waits for it for other reasons; a dotted one from
  // a branch or loop to the first task of each body.
  std::string explain_dot() const;
};

struct PlanOptions {
  bool check_finite = false;              // after every op with float outputs, clear ok if one is not finite
  bool fuse = true;                       // see CompileOptions::fuse
  bool programmatic_launch = false;       // see CompileOptions::programmatic_launch
  Placement default_placement{};          // placement of nodes for which the user asks for none
  std::vector<Target> further_targets{};  // at most kMaxFurtherTargets
};
constexpr std::size_t kMaxFurtherTargets = 4;

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
