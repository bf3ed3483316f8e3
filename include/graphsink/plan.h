// Target and Plan: what a device can hold, and what the passes made of a graph for it. Plain data, no device needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graphsink/graph.h"
#include "graphsink/op.h"

namespace graphsink {

// Which device; cpu() is the host itself.
struct DeviceId {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};
inline DeviceId cpu() { return {DeviceKind::cpu, 0}; }
inline DeviceId cuda(int index = 0) { return {DeviceKind::cuda, index}; }
std::string to_string(DeviceId id);  // "cpu", "cuda:0"

// What a device can do: the rules of what a sink may hold.
struct Target {
  DeviceId id;
  std::string name = "cpu";          // "NVIDIA H200"
  int sm = 0;                        // compute capability times ten, 0 on the CPU
  bool separate_memory = false;      // the host cannot touch its memory: CPU bodies need copies
  bool conditional_nodes = true;     // loops and branches can be part of a launch
  bool host_nodes_in_bodies = true;  // ... and their bodies may hold CPU ops
  int max_streams = 8;
  std::vector<int> peers;  // CUDA devices whose memory its copies can reach; other copies go through the host

  static Target host() { return {}; }
  // The rules of CUDA 13 (CUDA Programming Guide, "Conditional Graph Nodes"), for plans without a device at hand.
  static Target cuda13(int sm = 90);
};

// Where a buffer's address comes from when the plan is bound.
enum class Storage : std::uint8_t {
  arena,          // device memory at `offset` of the program's arena on that device
  host_arena,     // host memory that copies may use asynchronously, at `offset`
  hoisted,        // likewise, of its own: what Plan::hoisted copies there stays
  hoisted_there,  // the same in memory of a further device
  input,          // persistent; index: source node
  constant,       // persistent, filled at bind time; index: source node
  host_constant,  // the same in host memory, for CPU bodies on a device with separate memory
  variable,       // owned by the Variable; index: into Plan::variables
  step,           // the step number in the step block, and the seed behind it
  step_block,     // all of it
  feed_table,     // device array of addresses: where each feed's slices start
  feed_strides,   // device array of i64: bytes from slice to slice
  record_ring,    // f64, the rings of all records one after the other: host memory that the device writes
};

struct Buffer {
  Storage storage = Storage::arena;
  std::size_t bytes = 0;   // as asked for
  std::size_t offset = 0;  // arenas, hoisted: multiple of 256
  int index = -1;
  int device = 0;  // whose memory, where it is a device's: an index into Plan::devices
};

// A node of the graph, or one that a pass added, with everything the executors need.
struct PlanNode {
  const OpDef* op = nullptr;
  Attrs attrs;
  Where where;
  int id = -1;                    // number in the graph, -1 if a pass added it
  bool on_host = false;           // its CPU body runs on a device with separate memory
  int device = 0;                 // else where it runs; as in Buffer
  std::vector<int> operands;      // buffers: inputs, then outputs
  std::vector<TensorType> types;  // likewise
  int inputs = 0;
};

enum class StepKind : std::uint8_t { call, copy, branch, loop, mark };

// One item of the schedule.
struct Step {
  StepKind kind = StepKind::call;
  int node = -1;    // call: PlanNode
  int source = -1;  // copy: buffers; branch and loop: source is the predicate's buffer
  int destination = -1;
  int stream = 0;              // which of the plan's streams
  std::vector<int> after;      // streams whose work issued so far must be complete first
  std::vector<int> sequences;  // branch: then, else; loop: body
  int island = -1;             // mark: which of `islands` may begin here, -1: none
  int split_island = -1;       // likewise of `split_islands`
};

// The schedule of the whole step or of one body: an order that respects every dependency.
struct Sequence {
  std::vector<Step> steps;
};

// A copy to the host or to a further device that is no part of the step: no step changes its origin, an input or a
// Variable that the program does not assign. It runs before a step whenever someone has written that since it last ran.
struct HoistedCopy {
  int source = -1;  // buffers: the origin, or its copy on the host, which comes before this one
  int destination = -1;
  int origin = -1;
};

// Why something is not as the user might expect it to be.
struct Reason {
  std::string what;  // "hash_tokens runs on the host"
  Where where;
  std::string why;  // the rule
  std::string cost;
  std::string remedy;
  int node = -1;  // of the graph, -1: of something else
};

// Steps [first, last) of the schedule; `sunk`: they are one launch, else the host drives them.
struct Island {
  int first = 0;
  int last = 0;
  bool sunk = true;
  int mark = -1;  // a step of the island before, a launch: from there on both run side by side; -1: one after the other
};

// An input, a feed or a constant of the graph that the plan uses.
struct PlanSource {
  int node = -1;     // of the graph
  std::string name;  // "" for constants
  TensorType type;   // of a feed: of one slice
  Where where;
};
struct PlanFeed {
  int source = -1;  // the feed's node in the graph
  int buffer = -1;  // where the slice of the step is loaded
};
struct PlanRecord {
  std::string name;
  int buffer = -1;
  TensorType type;
  std::int64_t capacity = 0;  // of its ring, a power of two
};
struct PlanOutput {
  std::string name;  // "" for Values read by handle
  int node = -1;     // of the graph
  int output = 0;
  int buffer = -1;
  TensorType type;
};

// One of the devices that a plan may use, and what it needs there.
struct PlanDevice {
  Target target;
  int step_block = -1;  // of a further device: the buffer in which its ops report; -1: no node runs there
  std::size_t arena_bytes = 0;
  std::size_t hoisted_bytes = 0;
};

// What is known of a plan only once a program has bound it or run it.
struct PlanFacts {
  std::vector<std::size_t>
      workspaces;               // bytes of scratch memory that each of Plan::nodes asks for; empty: not asked yet
  std::vector<Reason> reasons;  // launches that the device refused to capture
};

struct Plan {
  std::vector<PlanDevice> devices;  // [0] has control flow and Variables; labels may ask for the others
  std::vector<Buffer> buffers;
  std::vector<PlanNode> nodes;
  std::vector<Sequence> sequences;  // [0] is the step
  std::vector<HoistedCopy> hoisted;
  std::vector<Variable> variables;
  std::vector<bool> variable_written;  // by the commit, per variable
  std::vector<PlanSource> sources;
  std::vector<PlanFeed> feeds;
  std::vector<PlanRecord> records;
  std::vector<PlanOutput> outputs;
  std::vector<Reason> reasons;
  std::vector<Island> islands;
  std::vector<Island> split_islands;  // those of Mode::split_sink; empty: no others
  int streams = 1;                    // used by the schedule
  std::vector<int> stream_devices;    // per stream; [0] is on device 0
  std::size_t host_arena_bytes = 0;   // values alone; workspaces of ops on the host are known once they are prepared
  std::size_t host_hoisted_bytes = 0;
  std::size_t value_bytes = 0;  // sum over all arena buffers: what it would take without reuse
  bool loop_over_steps = true;  // K steps can be one launch

  const Target& target() const { return devices[0].target; }

  // The plan as text: nodes in order with op, type, stream, memory and the user's line; then reasons.
  // Program::explain() adds the facts.
  std::string explain(const PlanFacts& facts = {}) const;

  // The same and more for a script, as one JSON object with these keys in this order; UTF-8, other bytes in names are
  // replaced. Sizes are bytes; a step of a body counts once, however often it runs; "where" is "train.cpp:12" or null.
  //   device, target          "cuda:0" and the name of the device
  //   further_devices         those that the plan uses besides
  //   sinks_whole             the step is one launch
  //   launches_per_step       what a run of one step takes in sink mode, once recorded
  //   loop_over_steps         a run of many steps takes one launch, else launches_per_step for each step
  //   nodes, host_nodes       nodes, and how many of them run on the host of a device with separate memory
  //   streams
  //   copies                  of each step: count, to_host_bytes, to_device_bytes, within_device_bytes,
  //                           between_devices_bytes
  //   hoisted                 copies that run only when their source was written; each: direction, bytes, source,
  //                           destination
  //   memory                  arena_bytes, host_arena_bytes (with workspaces, once they are known), hoisted_bytes,
  //                           value_bytes, live_bytes (see live_bytes())
  //   islands                 each: first, last (a range of `steps`), sunk, nodes (bodies included), mark (see Island;
  //                           or null)
  //   split_islands           likewise, those of split_sink; empty if they are the same
  //   steps                   the schedule; each: number (that of the text), kind, op, where, device ("cuda:0" or
  //                           "host"), stream, after (the streams it waits for), and
  //     kind "call"           inputs and outputs, each: type, access (inputs: read, write, shape_only), buffer, memory
  //     kind "mark"           island, split_island: what may begin here, beside the rest of this one; or null
  //     kind "copy"           direction (to_host, to_device, within_device, between_devices), bytes, source,
  //                           destination
  //     kind "if", "while"    predicate, bodies (steps of then, else; or of the one body)
  //   reasons                 each: what, why (the rule), where, cost, remedy
  // `buffer` is an index into `buffers`, `memory` its place as in the text; both are null where nothing is touched.
  std::string explain_json(const PlanFacts& facts = {}) const;

  // The same as a graph for graphviz (`dot -Tsvg`). A cluster for each island and for each body of if and while. Nodes
  // of the device are blue, of further ones green, of the host orange, copies and marks small and white (hoisted, which
  // run only when their source was written, dashed), control steps diamonds; numbers are those of the text. An edge
  // leads from each step that writes a buffer to each that may read what it wrote, so none leaves a view; a dashed one
  // from the last step of a stream to a step that waits for it for other reasons; a dotted one from a control step to
  // the first step of each body, and from a mark to the first step of its island.
  std::string explain_dot() const;
};

struct PlanOptions {
  bool check_finite = false;              // after every op with float outputs, clear ok if one is not finite
  bool fuse = true;                       // nodes that OpDef::fuse can join become one
  Place default_place = Place::anywhere;  // of nodes without a label
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
