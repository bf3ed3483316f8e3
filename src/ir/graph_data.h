// Data that the handles of graph.h point to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/at.h"
#include "base/ticket_lock.h"
#include "graphsink/graph.h"
#include "graphsink/op.h"
#include "graphsink/target.h"
#include "ir/bound_node.h"

namespace graphsink {

struct ValueRef {
  int node = -1;
  int output = 0;
  friend bool operator==(const ValueRef&, const ValueRef&) = default;
  friend auto operator<=>(const ValueRef&, const ValueRef&) = default;
};

struct GraphData;

struct Node {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<ValueRef> inputs;
  std::vector<TensorType> outputs;  // their open dimensions are marked
  // The outputs in each trial of the graph, if any depends on an open dimension.
  std::vector<std::vector<TensorType>> trials;
  Where where;
  Placement placement;
  int region = 0;
  // Number of the original if grad() made this node as a copy; random ops draw from it. -1: the node is no copy.
  int copy_of = -1;
  // The number of the composition that the node is a part of; -1: the user wrote the op itself.
  int composition = -1;
  // The node makes values that only its composition uses. These need not be finite, see CompileOptions::check_finite.
  bool is_inside = false;
  std::vector<int> bodies;  // if_: then, else; switch_: those of 0, 1, ..; while_: body
};

// Name for several nodes that the user did not write one by one: a function that is made of several ops, or the
// gradient of an op or of such a function. If compositions are nested, the outermost counts.
struct Composition {
  std::string_view op;  // a string literal
  int gradients = 0;    // 1: its gradient, 2: the gradient of that, ..
};

// The number of the iteration, i32: before the first one, in the body, and in the next. It is part of the loop's state
// if the loop has a limit or an op in the body needs it; otherwise `node` is -1.
struct LoopCounter {
  ValueRef first{}, now{}, next{};
};

// An output of a loop, [limit, ...]: the values that its iterations had, each at its place, and zeros elsewhere.
struct Stacked {
  ValueRef value{};
  ValueRef place{};  // i32 scalar
  friend bool operator==(const Stacked&, const Stacked&) = default;
};

// A body: the step itself is region 0. Nodes are in construction order, which respects dependencies.
struct Region {
  int parent = -1;
  const OpDef* op = nullptr;  // the control node that the body belongs to
  Where where;                // source location of the control node
  std::vector<int> nodes;
  std::vector<ValueRef> parameters;  // while_: the state at the beginning of an iteration
  std::vector<ValueRef> results;     // while_: the next state, then the predicate; else: the results
  bool is_loop = false;
  // while_: checks of grad() calls in the body that need the results. They run when the results are known.
  std::vector<std::function<void(const GraphData&)>> checks{};
  LoopCounter counter{};  // while_
  // while_: if it counts its iterations and stops at a limit, the limit (build/counted_loop.h); else 0.
  std::int64_t limit = 0;
  bool runs_to_limit = false;  // it never stops before
  // while_: its body is a loop over a part of the iterations, because of WhileOptions::recompute.
  bool is_of_segments = false;
  // while_: stacks, which are the outputs of the loop behind its state, a slice per iteration (see Stacked).
  std::vector<Stacked> stacked{};
};

// Attributes of the source ops below.
struct InputAttrs {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Dim> dims;
  // Node of the input whose size this one holds, and the axis, if true_size() made this one; else -1 and 0. write() of
  // that input writes this one, too.
  int size_of = -1;
  int axis = 0;
  // True for an input without data, whose size is that of the result of nonzero_op; the program sets it (select.h).
  bool is_result_size = false;
};
struct ConstantAttrs {
  std::shared_ptr<const Tensor> tensor;
  // True for small tensors with the same bits; large ones are equal only if they are the same.
  friend bool operator==(const ConstantAttrs& a, const ConstantAttrs& b) {
    constexpr std::size_t kMaxBytes = 256;
    if (a.tensor == b.tensor) return true;
    return a.tensor->type() == b.tensor->type() && a.tensor->bytes() <= kMaxBytes &&
           std::equal(a.tensor->data(), a.tensor->data() + a.tensor->bytes(), b.tensor->data());
  }
};
struct VariableAttrs {
  Variable variable;
};
struct ParameterAttrs {
  TensorType type;
  ValueRef initial;  // the value in the first iteration
};

// Ops without a body: their nodes only stand for memory.
extern const OpDef input_op;
extern const OpDef feed_op;
extern const OpDef constant_op;
extern const OpDef variable_op;
extern const OpDef step_op;
extern const OpDef random_state_op;  // i32 [2]: the step and the seed
extern const OpDef parameter_op;     // parameter of a loop body
// Control flow; bodies are regions.
extern const OpDef if_op;
extern const OpDef switch_op;
extern const OpDef while_op;

inline bool is_source(const OpDef& op) {
  return &op == &input_op || &op == &feed_op || &op == &constant_op || &op == &variable_op || &op == &step_op ||
         &op == &random_state_op || &op == &parameter_op;
}

// Whether its node runs one of several bodies, by the value of its only input.
inline bool is_branch(const OpDef& op) { return &op == &if_op || &op == &switch_op; }

// How a node of `op` uses one of its operands.
inline Access access_of(const OpDef& op, std::size_t operand, std::size_t operands) {
  return op.access ? op.access(static_cast<int>(operand), static_cast<int>(operands)) : Access::read;
}
// The bytes that a body reads and writes: all operands, twice those that it changes.
std::uint64_t bytes_moved(const BoundNode& node);
// Calls op.infer. Throws Error if the op has none or it refuses, if a result is too large for a tensor, and if a view
// does not fit into its input.
void infer_outputs(const OpDef& op, InferArgs& a);
// Finds the types of the node's outputs, in all trials of the graph, from its op, attributes and inputs, and notes that
// it commits the Variables that it writes. Throws Error as emit() does; and for a node of a file, which has `outputs`
// outputs, if the op makes another number of them, before other sizes are tried. The node is not part of the graph yet.
void infer_node(GraphData& graph, Node& node, std::optional<std::size_t> outputs = {});
// True for ops that are part of the commit.
inline bool writes_variables(const OpDef& op, std::size_t operands) {
  for (std::size_t i = 0; i < operands; ++i)
    if (access_of(op, i, operands) == Access::write) return true;
  return false;
}

// Whether a value has one element, whatever is written to the inputs.
inline bool is_single(const TensorType& type) { return !type.shape.has_open() && type.shape.size() == 1; }

struct NamedValue {
  std::string name;
  ValueRef value;
  Where where;
  std::int64_t capacity = 0;  // capacity of a record's ring; 0: the plan's choice
};

// Use of a Variable in a graph: the values that it is read and assigned as, and whether an op commits it.
struct VariableUse {
  Variable variable;
  ValueRef read{};      // the variable_op node
  ValueRef assigned{};  // node -1: not assigned
  Where assigned_where;
  bool committed = false;  // written by an op with Access::write: no more reads
  Where committed_where;

  bool is_assigned() const { return assigned.node >= 0 && !(assigned == read); }
  bool is_written() const { return committed || is_assigned(); }
};

// An op that computes what the commit writes to some Variables, as outputs. Its node is made when Graph::updated()
// needs it.
struct Update {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<ValueRef> inputs{};
  std::vector<Variable> variables{};  // by output
  int node = -1;                      // in region 0; -1: not made yet
};

struct GraphData : std::enable_shared_from_this<GraphData> {
  std::shared_ptr<const void> identity = std::make_shared<char>();  // copies of the graph have the same, no other graph
  std::vector<Node> nodes;
  std::vector<Region> regions{1};
  int current_region = 0;
  std::vector<VariableUse> variables;
  std::map<const VariableData*, int> variable_index;
  // Nodes that a single rank would not have, because a collective of one adds none. Random ops draw as if they were not
  // there, so that ranks draw what one process draws.
  std::set<int> rank_nodes;
  // Adds the nodes from `first` on to these.
  void note_rank_nodes(std::size_t first);
  // Variables of which the ranks of a group have equal values: those of an optimizer that updates parts, too.
  struct Undivided {
    std::shared_ptr<const void> group;  // RankDivision::group
    std::vector<Variable> variables;
  };
  std::vector<Undivided> undivided;
  std::vector<NamedValue> records;
  std::vector<NamedValue> stops;  // conditions of stop_when(), without names
  std::vector<NamedValue> outputs;
  std::map<std::string, Where> input_names;  // names of inputs and feeds, with the places where these were made
  std::map<std::pair<std::uint64_t, DType>, ValueRef> numbers;  // constants made from numbers, by their bits
  ValueRef random_state{};                                      // the only node of its op

  // An Eager runs the op instead of keeping the node.
  std::function<std::vector<Value>(const OpDef&, const std::vector<Value>&, const Attrs&, Placement, Where)> run_now;
  std::function<Value(const Tensor&)> upload_now;
  std::function<Tensor(const Value&)> download_now;
  std::int32_t random_ops_run = 0;  // by an Eager

  int add_node(Node node);  // into the current region

  std::vector<Composition> compositions;
  int add_composition(Composition composition);  // returns its number
  // Makes the nodes from `first` on parts of a composition that has these results.
  void compose(int composition, int first, std::span<const ValueRef> results);
  // The composition that the node is a part of, or else its own op, as the user wrote it.
  Composition written_as(const Node& node) const;
  // The same for texts: "softmax", "gradient of softmax".
  std::string name_of(const Node& node) const;

  // The number from which a random op draws, whatever passes make of the node.
  int origin_of(int node) const { return nodes[at(node)].copy_of >= 0 ? nodes[at(node)].copy_of : node; }
  const TensorType& type(ValueRef v) const { return nodes[at(v.node)].outputs[at(v.output)]; }
  // Trials find out which sizes depend on open dimensions: results are inferred with the examples, and again with other
  // sizes. In trial 0 all open dimensions are 1, and in trial 1 all are twice their example. In trial 2 + k, dimensions
  // whose example is open_examples[k] are twice that, and the others are their example, because some ops refuse other
  // sizes in all dimensions at once.
  std::vector<std::int64_t> open_examples;  // the first few different ones
  std::size_t trials() const { return 2 + open_examples.size(); }
  TensorType type_in_trial(ValueRef v, std::size_t trial) const;
  // Sets the outputs of a branch, a loop or a parameter to those of `values`, in all trials.
  void set_outputs_like(Node& node, std::span<const ValueRef> values) const;
  Value value(ValueRef v) { return Value(shared_from_this(), v.node, v.output); }
  // True if `region` is `outer` or lies within it.
  bool is_within(int region, int outer) const;
  // "mul at train.cpp:12": the node that makes the value.
  std::string describe(ValueRef v) const;
  // "the body of the loop at train.cpp:12".
  std::string describe_body(int region) const;
  // Returns the value, which `op` uses at `where`. Throws Error unless it is a Value of this graph that was made in the
  // body under construction or in one around it; other Values have no memory there.
  ValueRef visible(const Value& value, std::string_view op, const Where& where) const;
  // Throws Error for a Value that is made in a body and used outside of it.
  [[noreturn]] void refuse_inside(ValueRef v, std::string_view op, const Where& where) const;
  // Values that random ops draw from: the step and the seed, then the iteration of each loop around the current region,
  // the innermost first. `next` makes the value that follows an iteration.
  std::vector<Value> random_sources(const std::function<Value(const Value&)>& next, const Where& where);
  // The node standing for the Variable's value at the start of the step.
  VariableUse& use(const Variable& variable, const Where& where);

  std::vector<Update> updates;  // updates of the Variables that optimizers commit

  // By region and Variable: what was assigned when the body began.
  std::vector<std::vector<ValueRef>> assigned_at_start;
  void note_start_of_body();  // the current region
  // Whether the Variable has another value than when the current region began.
  bool is_assigned_here(const VariableUse& use) const;

  // The Variables that optimizers in bodies have made, in their order. The body of a loop is built more than once: what
  // is built then gets the same Variables again, from `next_made` on.
  std::vector<Variable> made_in_bodies;
  std::size_t next_made = 0;
  Variable make_variable(const std::string& name, const Tensor& initial, const Where& where, Placement on = {});
  // One that belongs to a parameter and lives where that does; `name` follows the parameter's: ".adamw.m".
  Variable make_beside(const Variable& parameter, const std::string& name, const Tensor& initial, const Where& where);
};

// The data that `graph` refers to. Throws Error if it was moved from, or is that of an Eager.
GraphData& data_of(const Graph& graph, const Where& where);
// Adds the node of a source op: in the step, whatever body is under construction, but for a parameter.
Value add_source(GraphData& graph, const OpDef& op, Attrs attrs, const Where& where);
Value add_input(GraphData& graph, InputAttrs attrs, const Where& where);
// Throws Error, in the name of `op`, for a Variable that refers to nothing.
void require_valid(const Variable& variable, std::string_view op, const Where& where);
// Converts the operands of an op, including numbers and Variables, to Values of their graph. Throws Error naming the op
// if they belong to no graph or to two, or if the dtype of the other operands cannot hold a number.
std::vector<Value> operand_values(std::string_view op, std::span<const Arg> args);
// The same where some of `args`, such as a condition, say nothing about the dtype of numbers: `peers` are the others.
std::vector<Value> operand_values(std::string_view op, std::span<const Arg> args, std::span<const Arg> peers);

// Memory of a Value of an Eager.
struct EagerStorage {
  TensorType type;
  std::shared_ptr<void> memory;
  std::shared_ptr<void> device;  // the Device, owned by what runs the ops
};

// Where a Variable lives once a program uses it; implemented by the executors.
class VariableStorage {
 public:
  virtual ~VariableStorage() = default;
  virtual Tensor read() = 0;
  virtual void write(const Tensor& tensor) = 0;
  // The programs that use it run no steps until the result is gone. The lock of the Variable is held as long. `call`:
  // what is done meanwhile, "read" or "write", for the Error in a child of fork().
  virtual std::shared_ptr<const void> hold_users(const char* call) = 0;
};

// A program whose steps write Variables.
class VariableWriter {
 public:
  virtual ~VariableWriter() = default;
  // Throws Error if a step failed and no call has reported it yet. Called by a thread that holds the lock of one of the
  // Variables.
  virtual void report_failed_step() = 0;
};

// One of several equal parts of a tensor, which is divided along an axis.
struct TensorPart {
  int axis = 0;
  std::int64_t number = 0, count = 1;
};

// How a tensor is divided among ranks, as the Variable that holds one of the parts knows it.
struct RankDivision {
  TensorPart part;
  std::shared_ptr<const void> group;  // ranks that have the parts; another pointer for each group
  // Returns the sum of a value over these ranks.
  std::function<Value(const Value& x, const Where& where)> sum;
};

struct VariableData {
  std::string name;
  TensorType type;
  Placement placement{};                         // `anywhere` or a device
  bool is_beside_another = false;                // its placement is that of a parameter that it belongs to
  std::shared_ptr<const RankDivision> division;  // null: the Variable is no part
  Tensor value;                                  // the data, until a program takes it to its device
  TicketLock lock;                               // protects `value`, `writers` and `storage`
  std::shared_ptr<VariableStorage> storage;
  std::vector<std::weak_ptr<VariableWriter>> writers;
};

// The number of the device of a program for `target` in whose memory the Variable lives.
inline int home_device(const Variable& variable, const Target& target) {
  return target.takes_further_devices ? variable.data()->placement.device : 0;
}

}  // namespace graphsink
