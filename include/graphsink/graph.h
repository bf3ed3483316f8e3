// Graph, Value, Variable and Arg, with which a computation is built. All are handles, cheap to copy. A Value keeps its
// graph alive.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "graphsink/bucket.h"
#include "graphsink/error.h"
#include "graphsink/tensor.h"
#include "graphsink/type.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

struct GraphData;
struct EagerStorage;
struct VariableData;

// Where the user wants a node to run. By default, `anywhere`, the planner decides: the node runs where it has a body.
// If that leaves a choice, nodes are placed so that the fewest bytes are copied between host and device, and on the
// device if that is no difference. Inputs, feeds, outputs, records and predicates live on the device, and so do
// Variables, unless they have a placement of their own. compile() throws Error if the op has no body for the placement
// that the user asks for.
struct Placement {
  // Where: as the planner decides, on the host, or on a device of the program.
  enum class Kind : std::uint8_t { anywhere, cpu, device };
  Kind kind = Kind::anywhere;  // kind of place that is asked for
  int device = 0;              // if kind is `device`: the number of one of the program's devices, 0 for its target
  // on_device(1) is the first of CompileOptions::further_devices.
  constexpr Placement operator()(int number) const { return {kind, number}; }
  // Whether kind and number are equal.
  friend bool operator==(const Placement&, const Placement&) = default;
};
// The host, also in a program for a GPU: the node's CPU body runs there.
inline constexpr Placement on_cpu{Placement::Kind::cpu};
// The program's target. Without effect in a program for cpu().
inline constexpr Placement on_device{Placement::Kind::device};

// As an end of slice() and of an Index: takes all elements that remain in the direction of the step.
inline constexpr std::int64_t to_end = std::numeric_limits<std::int64_t>::max();

// Argument of Value::operator[]: an element or a range of elements. Remembers the user's line for errors.
class Index {
 public:
  // An element; from the end if it is negative.
  template <std::integral T>
  Index(T element, Where where = Where::current())  // NOLINT: implicit, for x[i]
      : begin_(bounded(element)), where_(where) {}
  // The elements from `begin` up to `end`, without that.
  template <std::integral T, std::integral U>
  Index(T begin, U end, Where where = Where::current()) : begin_(bounded(begin)), end_(bounded(end)), where_(where) {}

  std::int64_t begin() const { return begin_; }             // the element, or the first of the range
  std::optional<std::int64_t> end() const { return end_; }  // none: the element `begin` alone
  const Where& where() const { return where_; }             // the user's line

 private:
  // An unsigned number above 2^63 stays too large: v.size() - 1 of an empty v is no index from the end. Does not
  // compile for bool and characters.
  template <std::integral T>
  static constexpr std::int64_t bounded(T number) {
    return std::in_range<std::int64_t>(number) ? static_cast<std::int64_t>(number) : to_end;
  }

  std::int64_t begin_;
  std::optional<std::int64_t> end_;
  Where where_;
};

// One output of one node of a graph.
class Value {
 public:
  // Refers to nothing: valid() is false, and every other call throws Error. A Value that was moved from is the same.
  Value() = default;
  // For the library's own layers.
  Value(std::shared_ptr<GraphData> graph, int node, int output, std::shared_ptr<EagerStorage> eager = nullptr)
      : graph_(std::move(graph)), node_(node), output_(output), eager_(std::move(eager)) {}

  bool valid() const { return graph_ != nullptr; }  // whether it refers to an output
  // @{
  // The dtype and shape. Dimensions whose size depends on an open dimension of an input are open.
  TensorType type(Where where = Where::current()) const;
  DType dtype(Where where = Where::current()) const { return type(where).dtype; }
  Shape shape(Where where = Where::current()) const { return type(where).shape; }
  // @}

  // x[i] is without the first axis: element i of it, from the end if i is negative. x[{a, b}] keeps the axis: its
  // elements from a up to b, as slice() counts them; to_end is an end, too. The results are copies. Throws Error for an
  // element that is not there. On an open axis, whose size is not known, i is 0 or -1; gather() takes any.
  Value operator[](const Index& index) const;

  // @{
  // For the library's own layers.
  const std::shared_ptr<GraphData>& graph() const { return graph_; }
  int node() const { return node_; }
  int output() const { return output_; }
  const std::shared_ptr<EagerStorage>& eager() const { return eager_; }
  // @}

 private:
  std::shared_ptr<GraphData> graph_;
  int node_ = -1;
  int output_ = 0;
  std::shared_ptr<EagerStorage> eager_;  // only for Values of an Eager
};

// State that lives across runs and may be used by several graphs, such as a parameter of a model. A handle: copies
// refer to the same state. Any thread may call read() and write() while other threads run programs that use the
// Variable: the calls take place between runs, never within one. In the body of an op they throw Error, because the
// body is part of a run.
class Variable {
 public:
  // Refers to nothing: valid() is false, and every other call throws Error. A Variable that was moved from is the same.
  Variable() = default;
  // Within a Scope the Variable is "layer3/w" for the name "w". Throws Error for a Tensor without data, and for a name
  // that is not UTF-8, which no checkpoint could hold.
  explicit Variable(std::string name, Tensor initial, Where where = Where::current());
  // The same, in memory of the device that `on` says: on_device(1) is the first of CompileOptions::further_devices.
  // An optimizer keeps its state of a parameter where the parameter lives, and updates both there. Programs that share
  // the Variable must mean the same device by the placement; a program for cpu() ignores it. Throws Error for on_cpu
  // and for a negative number. compile() throws Error if the program has no such further device.
  Variable(std::string name, Tensor initial, Placement on, Where where = Where::current());

  bool valid() const { return data_ != nullptr; }  // whether it refers to a state
  // The name with its scopes, "layer3/w". Valid as long as a handle to the state exists, as is the type.
  const std::string& name(Where where = Where::current()) const;
  // The dtype and shape, which never change.
  const TensorType& type(Where where = Where::current()) const;
  // The placement that it was made with: `anywhere`, which is the target, or a device.
  const Placement& placement(Where where = Where::current()) const;
  // Waits for the programs that use the Variable and returns a copy of its data. Throws Error if the device is lost; if
  // a commit broke off and left the Variable half-written (see Program); and, once, for a failed step that would have
  // written it and that no call has reported yet (see Program::sync()). In the last case the next read() returns the
  // value of the last committed step.
  Tensor read(Where where = Where::current()) const;
  // Waits for the programs that use the Variable and copies the tensor to it. Throws Error if the tensor has another
  // type.
  void write(const Tensor& tensor, Where where = Where::current());

  const std::shared_ptr<VariableData>& data() const { return data_; }  // for the library's own layers
  // Whether both refer to the same state, whatever its value is.
  friend bool operator==(const Variable& a, const Variable& b) { return a.data_ == b.data_; }

 private:
  std::shared_ptr<VariableData> data_;
};

// An operand of an op: a Value, a Variable or a number. A Variable stands for its value at the start of the step, or
// for the Value that was assigned to it, if assign() was called before. A number gets the dtype of the first other
// operand that is not boolean, if there is one, and is rounded to it. Beside booleans only, 0 and 1 are booleans.
// Numbers alone are f32, beside a condition or a mask, too, as in where(mask, 1.0, 0.0); true and false alone are
// booleans. Throws Error for a number that the dtype cannot hold: a fraction beside integers, a number outside the
// dtype's range, an integer that a double cannot hold exactly. Remembers the user's line for errors.
class Arg {
 public:
  // @{
  // Implicit: ops take Values, Variables and numbers. Integers that a double cannot hold exactly throw Error.
  Arg(Value value, Where where = Where::current());                                  // NOLINT: implicit, as are
  Arg(Variable variable, Where where = Where::current());                            // NOLINT: all of these
  Arg(double number, Where where = Where::current());                                // NOLINT
  Arg(float number, Where where = Where::current()) : Arg(double{number}, where) {}  // NOLINT
  template <std::integral T>
  Arg(T number, Where where = Where::current()) : Arg(exactly(number, where), where) {  // NOLINT
    is_bool_ = std::same_as<T, bool>;
  }
  // @}
  // @{
  // Copies share what the Arg refers to. Out of line: inlined into users' code, g++ 12 warns of the variant's unused
  // members.
  Arg(const Arg&);
  Arg(Arg&&) noexcept;
  Arg& operator=(const Arg&);
  Arg& operator=(Arg&&) noexcept;
  ~Arg();
  // @}

  const std::variant<Value, Variable, double>& content() const { return content_; }  // the operand as it was given
  const Where& where() const { return where_; }                                      // the user's line
  bool is_bool() const { return is_bool_; }                                          // made of true or false

 private:
  // Throw Error unless the double is the same number.
  static double exactly(std::int64_t number, const Where& where);
  static double exactly(std::uint64_t number, const Where& where);
  template <std::integral T>
  static double exactly(T number, const Where& where) {
    if constexpr (std::unsigned_integral<T>) {
      return exactly(std::uint64_t{number}, where);
    } else {
      return exactly(std::int64_t{number}, where);
    }
  }

  std::variant<Value, Variable, double> content_;
  Where where_;
  bool is_bool_ = false;
};

// Values as operands of a line.
std::vector<Arg> operands(std::span<const Value> values, const Where& where);

// One dimension of an input: a fixed size, or open, which means that the size comes with each write(). The graph is
// built with an example of the size, which all ops must accept. dim(x, d) gives the actual size as a Value.
struct Dim {
  std::int64_t size = 0;  // the fixed size; of an open dimension, the example
  bool is_open = false;   // whether the size comes with each write()
  Bucket bucket{};        // rule by which the sizes of an open dimension are rounded up
  // @{
  // A fixed size. Implicit, for {32, 784}.
  Dim(std::int64_t n) : size(n) {}  // NOLINT: implicit
  Dim(int n) : size(n) {}           // NOLINT: implicit
  // @}
  // A fixed size, or an example; see open().
  Dim(std::int64_t n, bool open) : size(n), is_open(open) {}
};
// An open dimension, of every size; `example` is one that all ops accept.
inline Dim open(std::int64_t example) { return Dim(example, true); }
// An open dimension of an input whose sizes are rounded up by a rule. write() takes data of any size and pads it with
// zeros to the next size of the rule, which is the size that ops and outputs have: a hundred lengths of text become the
// few plans and captured graphs of powers of two. The step gets the true size as a Value, true_size(), so that one
// captured graph serves all sizes of a bucket. Ops compute on the padding too: leave it out where rows are put
// together, with valid_mask() and where(), or masked_mean(). No rows at all are a bucket of padding alone.
//
//   Value x = g.input("x", f32, {open(32, next_power_of_two()), 64});
//   Value loss = masked_mean(cross_entropy(...), valid_mask(x, 0));
inline Dim open(std::int64_t example, Bucket bucket) {
  Dim dim(bucket.round_up(example), true);
  dim.bucket = std::move(bucket);
  return dim;
}

// Options of Graph::record().
struct RecordOptions {
  // The number of values that are kept until they are read, rounded up to a power of two; at most kMaxRecordCapacity,
  // divided by the elements of a value. Further values overwrite the oldest ones. Each element takes 8 bytes of host
  // memory. 0 means kRecordCapacity, or less in a graph with many records: all records with 0 together take at most 8
  // MiB, unless that is less than 16 values of each.
  std::int64_t capacity = 0;
};
constexpr std::int64_t kRecordCapacity = std::int64_t{1} << 16;     // most values for a RecordOptions::capacity of 0
constexpr std::int64_t kMaxRecordCapacity = std::int64_t{1} << 30;  // elements of all values that a record keeps
constexpr std::int64_t kMaxRecordElements = 4096;                   // elements of one value
constexpr std::size_t kMaxStops = 8;                                // conditions of Graph::stop_when()

// A computation under construction. Used by one thread at a time. compile() takes a snapshot: nodes that are added
// later are not part of the compiled Program. Every call on a Graph that was moved from throws Error.
//
// A step runs the ops that its outputs, records and assigned Variables need, and ops with an effect, such as
// check_finite(). Other ops do not run, so that nobody learns if they would fail, as gather() does for an index outside
// the axis.
class Graph {
 public:
  Graph();
  explicit Graph(std::shared_ptr<GraphData> data) : data_(std::move(data)) {}  // another handle to the same graph

  // @{
  // Adds an input: data given by Program::write(), the same for every step of a run. Dimensions that are open in
  // `shape` are open here, too. Throws Error for a negative size, and for the name of another input or feed.
  Value input(std::string name, DType dtype, std::initializer_list<Dim> dims, Where where = Where::current());
  Value input(std::string name, DType dtype, std::span<const Dim> dims, Where where = Where::current());
  Value input(std::string name, DType dtype, const Shape& shape, Where where = Where::current());
  // @}
  // @{
  // Adds a feed: data given by Program::write(), one slice of this shape for each step of a run. Throws Error as
  // input() does, and for a dimension with a bucket.
  Value feed(std::string name, DType dtype, std::initializer_list<Dim> dims, Where where = Where::current());
  Value feed(std::string name, DType dtype, std::span<const Dim> dims, Where where = Where::current());
  Value feed(std::string name, DType dtype, const Shape& shape, Where where = Where::current());
  // @}
  // Adds a constant, whose data become part of the graph.
  Value constant(Tensor tensor, Where where = Where::current());
  // The Variable's value at the start of the step, or the Value assigned to it. Throws Error behind the optimizer that
  // updates the Variable.
  Value value(const Variable& variable, Where where = Where::current());
  // The value that the Variable has after its update, in the same step: what the optimizer that was called before makes
  // of a parameter or of its own state, or the Value that was assigned last. For moving averages, target networks and
  // norms that are not one step late:
  //
  //   Optimizer optimizer = adamw(loss, {w});
  //   g.assign(average, g.value(average) * 0.99 + g.updated(w) * 0.01);
  //
  // Where an optimizer does not update in this step, because it accumulates gradients or an overflow skips the update,
  // it is the old value. An optimizer updates in place when the step commits, so that the value is computed a second
  // time, with the same bits; for a parameter this takes memory for it and its moments. Throws Error if nothing has
  // updated the Variable so far, and for one that an op of yours writes (Access::write).
  Value updated(const Variable& variable, Where where = Where::current());
  // The number of the step, counted from 0, which is the number of steps committed so far: an i32 scalar.
  Value step(Where where = Where::current());
  // Does the same as the function assign() below. `value` may also be a Variable, or a number, which becomes every
  // element; neither says which graph the assignment belongs to, which is why the function does not take them.
  void assign(const Variable& variable, Arg value);

  // Records `value`, one float or several, such as a loss, or the norms of all layers, in every step.
  // Program::records(name) returns the values of all steps since its last call, as far as RecordOptions::capacity has
  // room for them. Throws Error for a second record with the same name, for a value that is not made of 1 to
  // kMaxRecordElements floats or has an open dimension, and for a capacity that is negative or too large.
  void record(std::string name, Arg value, const RecordOptions& options = {});
  // Ends the run with the first step in which `condition`, a boolean scalar, holds. That step commits, and no step
  // after it does: of a launch of many steps the rest is left out, and steps that were issued meanwhile commit nothing.
  // The next call that reports failed steps (Program::sync()) throws Error with ErrorCode::stopped and the number of
  // the step. The run that follows begins with the next step. Throws Error for a value of another type, and for more
  // than kMaxStops conditions in a graph.
  void stop_when(Arg condition);
  // Makes the value that the last step of a run computes readable by Program::output(name) and
  // Program::output(value).
  void output(std::string name, Arg value);

  const std::shared_ptr<GraphData>& data() const { return data_; }  // for the library's own layers

 private:
  std::shared_ptr<GraphData> data_;
};

// The size of an axis of an input, as an i32 scalar, of the data as it was given to write(), without what was added to
// fill its bucket; see open(). Without a bucket it is dim(). Throws Error unless `input` is the Value that
// Graph::input() has returned.
Value true_size(const Value& input, int axis, Where where = Where::current());
// For each index of that axis, whether the data as it was given to write() has it: a bool vector, true and then false.
Value valid_mask(const Value& input, int axis, Where where = Where::current());

// Assigns `value` to the Variable when the step commits. Nodes of this graph that read the Variable after this call see
// `value`. In a body of while_, scan, if_ or switch_ it counts if the body runs: the next iteration and what follows
// the loop or branch see the Value that was assigned last. Throws Error if the types differ, and for a Variable or a
// number as `value` (use Graph::assign()).
void assign(const Variable& variable, Arg value);

}  // namespace graphsink
