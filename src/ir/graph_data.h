// What the handles of graph.h point to.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "graphsink/graph.h"
#include "graphsink/op.h"

namespace graphsink {

struct ValueRef {
  int node = -1;
  int output = 0;
  friend bool operator==(const ValueRef&, const ValueRef&) = default;
};

struct Node {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<ValueRef> inputs;
  std::vector<TensorType> outputs;
  Where where;
  Label label;
  int region = 0;
  std::vector<int> bodies;  // if_: then, else; while_: body
};

// The number of the iteration, i32: before the first one, in the body, and in the next. Part of the loop's state if an
// op in the body asked for it, node -1 if none did.
struct LoopCounter {
  ValueRef first{}, now{}, next{};
};

// A body: the step itself is region 0. Nodes are in construction order, which respects dependencies.
struct Region {
  int parent = -1;
  std::vector<int> nodes;
  std::vector<ValueRef> parameters;  // while_: the state at the beginning of an iteration
  std::vector<ValueRef> results;     // while_: the next state, then the predicate; if_: the results
  bool is_loop = false;
  LoopCounter counter{};  // while_
};

// Attributes of the source ops below.
struct InputAttrs {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Dim> dims;
};
struct ConstantAttrs {
  std::shared_ptr<const Tensor> tensor;
};
struct VariableAttrs {
  Variable variable;
};
struct ParameterAttrs {
  TensorType type;
};

// Nodes without a body: they only stand for memory.
extern const OpDef input_op;
extern const OpDef feed_op;
extern const OpDef constant_op;
extern const OpDef variable_op;
extern const OpDef step_op;
extern const OpDef random_state_op;  // i32 [2]: the step and the seed
extern const OpDef parameter_op;     // of a loop body
// Control flow; bodies are regions.
extern const OpDef if_op;
extern const OpDef while_op;

inline bool is_source(const OpDef& op) {
  return &op == &input_op || &op == &feed_op || &op == &constant_op || &op == &variable_op || &op == &step_op ||
         &op == &random_state_op || &op == &parameter_op;
}

// What `op` does with one of its operands.
inline Access access_of(const OpDef& op, std::size_t operand, std::size_t operands) {
  return op.access ? op.access(static_cast<int>(operand), static_cast<int>(operands)) : Access::read;
}
// True for ops that are part of the commit.
inline bool writes_variables(const OpDef& op, std::size_t operands) {
  for (std::size_t i = 0; i < operands; ++i)
    if (access_of(op, i, operands) == Access::write) return true;
  return false;
}

struct NamedValue {
  std::string name;
  ValueRef value;
  Where where;
};

// What is known in a graph about a Variable.
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

struct GraphData : std::enable_shared_from_this<GraphData> {
  std::vector<Node> nodes;
  std::vector<Region> regions{1};
  int current_region = 0;
  std::vector<VariableUse> variables;
  std::map<const VariableData*, int> variable_index;
  std::vector<NamedValue> records;
  std::vector<NamedValue> outputs;
  std::map<std::pair<std::uint64_t, DType>, ValueRef> numbers;  // constants made from numbers, by their bits
  ValueRef random_state{};                                      // the only node of its op

  // An Eager runs the op instead of keeping the node.
  std::function<std::vector<Value>(const OpDef&, const std::vector<Value>&, const Attrs&, Label, Where)> run_now;
  std::function<Value(const Tensor&)> upload_now;
  std::function<Tensor(const Value&)> download_now;
  std::int32_t random_ops_run = 0;  // by an Eager

  int add_node(Node node);  // into the current region
  const TensorType& type(ValueRef v) const {
    return nodes[static_cast<std::size_t>(v.node)].outputs[static_cast<std::size_t>(v.output)];
  }
  Value value(ValueRef v) { return Value(shared_from_this(), v.node, v.output); }
  // What random ops draw from: the step and the seed, then the iteration of each loop around the current region, the
  // innermost first. `next` makes the value that follows an iteration.
  std::vector<Value> random_sources(const std::function<Value(const Value&)>& next, const Where& where);
  // The node standing for the Variable's value at the start of the step.
  VariableUse& use(const Variable& variable, const Where& where);
};

// The operands of an op as Values of the one graph that they name, numbers and Variables included. Throws Error naming
// the op if they name none or two, or if the dtype that a number takes cannot hold it.
std::vector<Value> operand_values(std::string_view op, std::span<const Arg> args);

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
};

struct VariableData {
  std::string name;
  Tensor value;  // the data, until a program takes it to its device
  std::mutex mutex;
  std::shared_ptr<VariableStorage> storage;
};

}  // namespace graphsink
